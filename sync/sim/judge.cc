// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/judge.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace cw::sync::sim {
namespace {

struct Band {
  const char* metric;
  double Expect::*band;
  bool most;
};
constexpr Band kBands[] = {
    {"p50_ns", &Expect::p50_ns, true},
    {"p99_ns", &Expect::p99_ns, true},
    {"max_ns", &Expect::max_ns, true},
    {"converge_s", &Expect::converge_s, true},
    {"reconverge_s", &Expect::reconverge_s, true},
    {"bound_coverage", &Expect::bound_coverage, false},
    {"disjoint", &Expect::disjoint, true},
    {"est_coverage", &Expect::est_coverage, false},
    {"est_ratio", &Expect::est_ratio, true},
    {"untold_s", &Expect::untold_s, true},
    {"bound_p50_ns", &Expect::bound_p50_ns, true},
    {"synchronised", &Expect::synchronised, false},
    {"liars_named", &Expect::liars_named, false},
    {"accused", &Expect::accused, true},
    {"disturbed", &Expect::disturbed, true},
    {"disturbed_epoch", &Expect::disturbed_epoch, true},
    {"jump_ns", &Expect::jump_ns, true},
    {"refused", &Expect::refused, false},
    {"victim_ns", &Expect::victim_ns, true},
    {"tai_p99_ns", &Expect::tai_p99_ns, true},
    {"tai_coverage", &Expect::tai_coverage, false},
    {"tai_known", &Expect::tai_known, false},
    {"anchors_named", &Expect::anchors_named, false},
    {"region_p99_ns", &Expect::region_p99_ns, true},
    {"nic_p99_ns", &Expect::nic_p99_ns, true},
    {"suspects_wrong", &Expect::suspects_wrong, true},
    {"suspects_named", &Expect::suspects_named, false},
};

}  // namespace

std::vector<Miss> Judge(const Scenario& scenario, const Metrics& metrics, uint64_t seed) {
  std::vector<Miss> misses;
  for (const Band& b : kBands) {
    const double band = scenario.expect.*b.band;
    if (!IsBand(band)) continue;
    const auto it = metrics.find(b.metric);
    if (it == metrics.end()) {
      misses.push_back({b.metric, kNoBand, band, b.most, seed});
    } else if (b.most ? it->second > band : it->second < band) {
      misses.push_back({b.metric, it->second, band, b.most, seed});
    }
  }
  return misses;
}

SeedResult RunSeed(const Scenario& scenario, uint64_t seed) {
  World world(scenario, seed);
  SeedResult r;
  r.seed = seed;
  r.metrics = world.Run();
  r.cost = world.cost();
  r.moments = world.moments();
  r.misses = Judge(scenario, r.metrics, seed);
  return r;
}

Verdict RunScenario(const Scenario& scenario, int seeds, uint64_t first_seed) {
  Verdict v;
  for (int i = 0; i < seeds; ++i) {
    v.seeds.push_back(RunSeed(scenario, first_seed + static_cast<uint64_t>(i)));
    v.passed = v.passed && v.seeds.back().misses.empty();
  }
  v.expected = v.passed == scenario.known_miss.empty();
  const auto worst = [&](const char* metric) {
    double w = kNoBand;
    for (const SeedResult& r : v.seeds) {
      const auto it = r.metrics.find(metric);
      if (it != r.metrics.end() && !(w >= it->second)) w = it->second;
    }
    return w;
  };
  v.summary = absl::StrFormat(
      "p50 %.0f p99 %.0f max %.0f ns, converged %.1f s, bound %.0f (judged at %.0f hosts) error_est %.0f ns",
      worst("p50_ns"), worst("p99_ns"), worst("max_ns"), worst("converge_s"), worst("bound_p50_ns"),
      worst("bound_judged_hosts"), worst("est_p50_ns"));
  return v;
}

std::string Describe(const Miss& m) {
  if (!IsBand(m.value)) {
    return absl::StrFormat("seed %d: nothing to judge %s by (band %g)", m.seed, m.metric, m.band);
  }
  return absl::StrFormat("seed %d: %s is %g, has to be at %s %g", m.seed, m.metric, m.value, m.most ? "most" : "least",
                         m.band);
}

}  // namespace cw::sync::sim
