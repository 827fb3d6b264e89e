// SPDX-License-Identifier: Apache-2.0
//
// cw_clock_sim: runs scenarios of the clock's simulator and holds them against their bands.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "sync/sim/calibrate.h"
#include "sync/sim/judge.h"

namespace {

using namespace cw::sync::sim;

constexpr int kOk = 0, kFailed = 1, kUsage = 2;

struct Options {
  std::vector<std::string> files;
  int seeds = 0;  // 0: as the scenario says
  int first_seed = 1;
  int hosts = 0;  // 0: as the scenario says
  bool json = false;
  bool calibrate = false;
  bool trace = false;
};

int Usage(const std::string& what) {
  std::fprintf(stderr,
               "cw_clock_sim: %s\n"
               "usage: cw_clock_sim SCENARIO.toml… [--seeds N] [--first-seed N] [--hosts N] [--json] [--trace]\n"
               "       cw_clock_sim --calibrate [--seeds N]   figures for the error model of links\n"
               "exit: 0 as expected, 1 a band missed (or a known miss that passes), 2 usage or a bad scenario\n",
               what.c_str());
  return kUsage;
}

int ParseArguments(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    int* number = a == "--seeds" ? &o.seeds : a == "--first-seed" ? &o.first_seed : a == "--hosts" ? &o.hosts : nullptr;
    if (number != nullptr) {
      if (i + 1 >= argc || !absl::SimpleAtoi(argv[++i], number) || *number < 1) {
        return Usage(a + " needs a number from 1 on");
      }
    } else if (a == "--json") {
      o.json = true;
    } else if (a == "--trace") {
      o.trace = true;
    } else if (a == "--calibrate") {
      o.calibrate = true;
    } else if (a.rfind("-", 0) == 0) {
      return Usage("no option " + a);
    } else {
      o.files.push_back(a);
    }
  }
  if (o.files.empty() && !o.calibrate) return Usage("name a scenario, for example tests/clock/quiet.toml");
  return kOk;
}

int PrintCalibration(int seeds) {
  std::printf(
      "stamps  load  error  tau   slope  est  over   start find  lag  young\n"
      "              ns     s     ppb    ns   ns     s     s     s^2  ns, ppb, est\n");
  for (const bool nic : {false, true}) {
    for (const double load : {0.0, 0.4, 0.8}) {
      const LinkFigures f = Calibrate(load, nic, seeds);
      std::printf("%-7s %.1f  %6.1f  %4.2f  %5.1f  %4.0f %6.0f  %.2f  %.2f  %.2f  %.0f %.0f %.0f\n",
                  nic ? "nic" : "kernel", f.load, f.error_ns, f.tau_s, f.slope_ppb, f.est_ns, f.over_ns, f.start_s,
                  f.find_s, f.lag_s2, f.young_ns, f.young_ppb, f.young_est_ns);
    }
  }
  const TieFigures tie = CalibrateTie(seeds);
  std::printf("tie          %6.1f  %4.2f\n", tie.error_ns, tie.tau_s);
  return kOk;
}

nlohmann::json ToJson(const Scenario& s, const Verdict& v, double wall_s) {
  nlohmann::json seeds = nlohmann::json::array();
  for (const SeedResult& r : v.seeds) {
    nlohmann::json misses = nlohmann::json::array();
    for (const Miss& m : r.misses) misses.push_back(Describe(m));
    seeds.push_back({{"seed", r.seed},
                     {"metrics", r.metrics},
                     {"misses", misses},
                     {"rounds", r.cost.rounds},
                     {"update_us", r.cost.update_us}});
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {{"scenario", s.name},         {"file", s.file},
          {"hosts", s.hosts},           {"passed", v.passed},
          {"known_miss", s.known_miss}, {"as_expected", v.expected},
          {"wall_s", wall_s},           {"rss_max_mib", usage.ru_maxrss / 1024.0},
          {"claim_bytes", kClaimBytes}, {"seeds", seeds}};
}

// Of all seeds, hosts and rounds that were judged.
struct Judged {
  double samples = 0;
  double wrong = 0;  // fleet time was off by more than its bound

  void Add(const Metrics& m) {
    const auto n = m.find("bound_samples"), share = m.find("bound_coverage");
    if (n == m.end() || share == m.end()) return;
    samples += n->second;
    wrong += n->second * (1 - share->second);
  }
};

void Print(const Scenario& s, const Verdict& v, double wall_s) {
  Judged judged;
  for (const SeedResult& r : v.seeds) judged.Add(r.metrics);
  const char* word =
      v.passed ? (v.expected ? "ok" : "PASSES, but is marked a known miss") : (v.expected ? "known miss" : "MISSED");
  std::printf("%-28s %s  (%zu seeds, %.1f s)\n    %s\n    judged: %.0f samples, %.0f beyond their bound%s\n",
              s.name.c_str(), word, v.seeds.size(), wall_s, v.summary.c_str(), judged.samples, judged.wrong,
              s.expect.bound_coverage < 1 ? ", in a scenario that the bound does not cover" : "");
  for (const SeedResult& r : v.seeds) {
    for (const Miss& m : r.misses) std::printf("    %s\n", Describe(m).c_str());
  }
  if (!s.known_miss.empty()) std::printf("    known: %s\n", s.known_miss.c_str());
}

void PrintTrace(const Verdict& v) {
  for (const SeedResult& r : v.seeds) {
    std::printf("seed %d: s, p99 of |F_i - F_j| ns, share synchronised\n", static_cast<int>(r.seed));
    for (const Moment& m : r.moments) {
      std::printf("%8.1f %12.0f %6.3f\n", static_cast<double>(m.at) / kSecond, m.worst_ns, m.synchronised);
    }
    for (const auto& [name, value] : r.metrics) std::printf("%20s %g\n", name.c_str(), value);
    std::printf("%20s %g\n", "update_us", r.cost.update_us);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (const int rc = ParseArguments(argc, argv, o); rc != kOk) return rc;
  if (o.calibrate) return PrintCalibration(o.seeds > 0 ? o.seeds : 8);
  std::vector<Scenario> scenarios;
  for (const std::string& file : o.files) {
    auto s = ReadScenario(file);
    if (!s.ok()) {
      std::fprintf(stderr, "%s\n", std::string(s.status().message()).c_str());
      return kUsage;
    }
    if (o.hosts > 0) s->hosts = o.hosts;
    scenarios.push_back(*std::move(s));
  }
  bool expected = true;
  nlohmann::json all = nlohmann::json::array();
  for (const Scenario& s : scenarios) {
    const auto start = std::chrono::steady_clock::now();
    const Verdict v = RunScenario(s, o.seeds > 0 ? o.seeds : s.seeds, static_cast<uint64_t>(o.first_seed));
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    expected = expected && v.expected;
    if (o.json) {
      all.push_back(ToJson(s, v, wall_s));
    } else {
      Print(s, v, wall_s);
      if (o.trace) PrintTrace(v);
      std::fflush(stdout);
    }
  }
  if (o.json) std::printf("%s\n", all.dump(1).c_str());
  return expected ? kOk : kFailed;
}
