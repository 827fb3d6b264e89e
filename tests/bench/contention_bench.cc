// SPDX-License-Identifier: Apache-2.0
// Long flows over four and eight spines: kernel ECMP, flowlet switching at the leaves (dlb), cwfabric with the same
// seeds, and the best static assignment. Four seeds, BENCH_FULL=1: 20, BENCH_SEEDS=7 so many; BENCH_CASE and
// BENCH_SYSTEM pick.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_contention.h"

namespace {

using cw::bench::Wanted;
using cw::lab::ContentionResult;
using cw::lab::ContentionSpec;
using cw::lab::Workload;

struct Case {
  const char* name;
  Workload workload;
  int spines = 4;
  double link_mbps = 200;  // what carries more flows has slower links: two processors carry every hop
};
constexpr Case kCases[] = {{"pairwise_8x4", Workload::kPairwise},
                           {"two_alltoall", Workload::kTwoAllToAll},
                           {"asymmetric", Workload::kAsymmetric},
                           {"ring", Workload::kRing},
                           {"alltoall", Workload::kAllToAll, 4, 100},
                           {"pairwise_8x8", Workload::kPairwise, 8, 100},
                           {"two_alltoall_8", Workload::kTwoAllToAll, 8, 100}};
const std::vector<std::string> kSystems = {"ecmp", "dlb", "cwfabric", "best"};
// Of the flowlets' gap, on one seed: the best is used on all, and told in the row "gap". What a flow sends is a packet
// per 0.36 ms at its share of a link, so the short ones spray packets and the longest never ends a flowlet.
constexpr int64_t kGapsUs[] = {50, 200, 500, 1000, 5000};

ContentionSpec SpecOf(const Case& c, uint64_t seed, bool agents) {
  ContentionSpec spec;
  spec.testbed.fabric = {
      .lab = "benchco", .spines = c.spines, .hosts_per_leaf = 4, .link_mbps = c.link_mbps, .ecmp_seed = 1};
  spec.testbed.agents = agents;
  // As many probes with eight spines as with four: two processors carry their hops, too.
  spec.testbed.active_interval = absl::Milliseconds(5) * c.spines / 4;
  spec.testbed.adjust = [rate = c.link_mbps](int, cw::config::Config& config) {
    config.steering.path_gbps = rate / 1e3;
  };
  spec.workload = c.workload;
  spec.best_duration = absl::Seconds(20);
  spec.seed = seed;
  return spec;
}

// Why a flow left its path when it did, as the agents tell it; the rest are "other".
const std::vector<std::string> kMoveKinds = {"idle", "held", "gap", "forced", "path dead", "other"};

// Of one system in one case.
struct Collected {
  std::map<std::string, std::vector<double>> kind_moves, kind_naks;
  std::vector<double> goodput, completion, settle, owd_p99, moves, naks, lost, icrc;
  std::vector<uint64_t> seeds;
  void Add(const ContentionResult& r) {
    seeds.push_back(r.seed);
    goodput.push_back(r.goodput_min_mbps);
    completion.push_back(r.completion_s);
    if (r.settle_s >= 0) settle.push_back(r.settle_s);
    owd_p99.push_back(r.owd_p99_us);
    moves.push_back(static_cast<double>(r.moves));
    naks.push_back(static_cast<double>(r.naks));
    AddKinds(r.kinds);
    lost.push_back(r.flows_lost);
    icrc.push_back(static_cast<double>(r.icrc_errors));
  }
  void AddKinds(const std::map<std::string, cw::lab::MovesOfKind>& seen) {
    for (const std::string& kind : kMoveKinds) {
      kind_moves[kind].push_back(0);
      kind_naks[kind].push_back(0);
    }
    for (const auto& [reason, of] : seen) {
      const std::string kind = kind_moves.contains(reason) ? reason : "other";
      kind_moves[kind].back() += static_cast<double>(of.moves);
      kind_naks[kind].back() += static_cast<double>(of.naks);
    }
  }
  // Of those kinds that there were.
  void ReportKinds(cw::bench::Report& report, const Case& c, const char* system) const {
    for (const auto& [kind, counts] : kind_moves) {
      if (std::all_of(counts.begin(), counts.end(), [](double n) { return n == 0; })) continue;
      const std::string name = absl::StrReplaceAll(kind, {{" ", "_"}});
      report.Add(c.name, system, "moves_" + name, "count", counts);
      report.Add(c.name, system, "naks_after_" + name, "count", kind_naks.at(kind));
    }
  }
  void Report(cw::bench::Report& report, const Case& c, const char* system, bool settles) const {
    report.Add(c.name, system, "goodput_min", "Mbit/s", goodput);
    for (size_t i = 0; i < seeds.size(); ++i)
      report.Add(c.name, system, absl::StrCat("goodput_min_seed_", seeds[i]), "Mbit/s", {goodput[i]});
    report.Add(c.name, system, "completion", "s", completion);
    if (settles && !cw::lab::HasRounds(c.workload)) {
      report.Add(c.name, system, "settle", "s", settle);
      report.Add(c.name, system, "never_settled", "count", {static_cast<double>(seeds.size() - settle.size())});
    }
    report.Add(c.name, system, "owd_p99", "us", owd_p99);
    report.Add(c.name, system, "moves", "count", moves);
    report.Add(c.name, system, "naks", "count", naks);
    ReportKinds(report, c, system);
    report.Add(c.name, system, "flows_lost", "count", lost);
    report.Add(c.name, system, "icrc_errors", "count", icrc);
  }
};

bool Run(const Case& c, const ContentionSpec& spec, const char* system, Collected& into) {
  absl::StatusOr<ContentionResult> result = cw::lab::RunContention(spec);
  if (!result.ok()) {
    std::fprintf(stderr, "%s, seed %llu, %s: %s\n", c.name, static_cast<unsigned long long>(spec.seed), system,
                 std::string(result.status().message()).c_str());
    return false;
  }
  const std::string settled =
      result->settle_s < 0 ? "not settled" : absl::StrCat("settled after ", result->settle_s, " s");
  std::fprintf(stderr, "%s: %s; slowest %.1f Mbit/s, %.1f s, %s, %d moves, %d NAKs\n", c.name,
               result->phase.name.c_str(), result->goodput_min_mbps, result->completion_s, settled.c_str(),
               static_cast<int>(result->moves), static_cast<int>(result->naks));
  if (std::getenv("BENCH_VERBOSE") != nullptr) {
    for (const double goodput : result->goodput_mbps) std::fprintf(stderr, "  %.1f", goodput);
    std::fprintf(stderr, " Mbit/s\n");
    for (const cw::lab::Mark& mark : result->decisions)
      std::fprintf(stderr, "  %.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
  into.Add(*result);
  return true;
}

// The gap with which the slowest flow of the first seed gets most. BENCH_GAP_US: no sweep.
bool BestGap(const Case& c, absl::Duration& best) {
  int64_t given = 0;
  const char* text = std::getenv("BENCH_GAP_US");
  if (text != nullptr && absl::SimpleAtoi(text, &given) && given > 0) {
    best = absl::Microseconds(given);
    return true;
  }
  double most = -1;
  for (const int64_t us : kGapsUs) {
    ContentionSpec spec = SpecOf(c, 1, false);
    spec.flowlet_gap = absl::Microseconds(us);
    Collected one;
    if (!Run(c, spec, "dlb", one)) return false;
    if (one.goodput[0] <= most) continue;
    most = one.goodput[0];
    best = spec.flowlet_gap;
  }
  return true;
}

// What it gives differs by a percent or two from seed to seed.
bool RunBest(const Case& c, Collected& best) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    ContentionSpec spec = SpecOf(c, seed, false);
    spec.best_static = true;
    if (!Run(c, spec, "best", best)) return false;
  }
  return true;
}

bool RunCase(const Case& c, const Wanted& systems, uint64_t seeds, cw::bench::Report& report) {
  std::map<std::string, Collected> all;
  absl::Duration gap;
  if (systems.Has("dlb") && !BestGap(c, gap)) return false;
  if (systems.Has("best") && !RunBest(c, all["best"])) return false;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const char* system : {"ecmp", "dlb", "cwfabric"}) {
      if (!systems.Has(system)) continue;
      ContentionSpec spec = SpecOf(c, seed, std::string(system) == "cwfabric");
      if (std::string(system) == "dlb") spec.flowlet_gap = gap;
      if (all.contains("best")) spec.best_mbps = cw::bench::Quantile(all["best"].goodput, 0.5);
      if (!Run(c, spec, system, all[system])) return false;
    }
  }
  for (const std::string& system : kSystems) {
    if (!all.contains(system)) continue;
    const Collected& of = all[system];
    of.Report(report, c, system.c_str(), all.contains("best") && system != "best");
    if (system == "best" || !all.contains("best")) continue;
    std::vector<double> share;
    const double best = cw::bench::Quantile(all["best"].goodput, 0.5);
    for (const double goodput : of.goodput) share.push_back(100 * goodput / best);
    report.Add(c.name, system, "goodput_min_of_best", "percent", share);
  }
  if (systems.Has("dlb")) report.Add(c.name, "dlb", "gap", "us", {absl::ToDoubleMicroseconds(gap)});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seeds = std::getenv("BENCH_FULL") != nullptr ? 20 : 4;
  if (const char* given = std::getenv("BENCH_SEEDS");
      given != nullptr && (!absl::SimpleAtoi(given, &seeds) || seeds == 0)) {
    std::fprintf(stderr, "BENCH_SEEDS: '%s' is no number of seeds above 0\n", given);
    return 2;
  }
  std::vector<std::string> names;
  for (const Case& c : kCases) names.emplace_back(c.name);
  const auto cases = Wanted::Parse(std::getenv("BENCH_CASE"), names);
  const auto systems = Wanted::Parse(std::getenv("BENCH_SYSTEM"), kSystems);
  for (const auto* wanted : {&cases, &systems}) {
    if (wanted->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(wanted->status().message()).c_str());
    return 2;
  }
  cw::bench::Report report("contention");
  for (const Case& c : kCases) {
    if (cases->Has(c.name) && !RunCase(c, *systems, seeds, report)) return 1;
  }
  const std::string out = cw::bench::OutPath(argc, argv, "build/bench/contention.json");
  if (absl::Status status = report.Write(out); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
