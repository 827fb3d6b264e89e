// SPDX-License-Identifier: Apache-2.0
// Eight long flows over four spines: kernel ECMP, cwfabric with the same seeds, and the best static assignment (a seed
// whose ECMP ports happen to spread perfectly). BENCH_FULL=1 runs 40 seeds instead of 20.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_contention.h"

namespace {

using cw::lab::ContentionResult;
using cw::lab::ContentionSpec;

constexpr char kCase[] = "pairwise_8x4";

ContentionSpec SpecOf(uint64_t seed, bool agents) {
  ContentionSpec spec;
  spec.testbed.fabric = {.lab = "benchco", .hosts_per_leaf = 4, .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agents = agents;
  spec.testbed.active_interval = absl::Milliseconds(5);
  spec.best_duration = absl::Seconds(20);
  spec.seed = seed;
  return spec;
}

struct Collected {
  std::vector<double> goodput, completion, owd_p99, moves, naks, lost, icrc;
  void Add(const ContentionResult& r) {
    goodput.push_back(r.goodput_min_mbps);
    completion.push_back(r.completion_s);
    owd_p99.push_back(r.owd_p99_us);
    moves.push_back(static_cast<double>(r.moves));
    naks.push_back(static_cast<double>(r.naks));
    lost.push_back(r.flows_lost);
    icrc.push_back(static_cast<double>(r.icrc_errors));
  }
  void Report(cw::bench::Report& report, const char* system) const {
    report.Add(kCase, system, "goodput_min", "Mbit/s", goodput);
    report.Add(kCase, system, "completion", "s", completion);
    report.Add(kCase, system, "owd_p99", "us", owd_p99);
    report.Add(kCase, system, "moves", "count", moves);
    report.Add(kCase, system, "naks", "count", naks);
    report.Add(kCase, system, "flows_lost", "count", lost);
    report.Add(kCase, system, "icrc_errors", "count", icrc);
  }
};

bool Run(uint64_t seed, bool agents, const char* system, Collected& into) {
  absl::StatusOr<ContentionResult> result = cw::lab::RunContention(SpecOf(seed, agents));
  if (!result.ok()) {
    std::fprintf(stderr, "seed %llu, %s: %s\n", static_cast<unsigned long long>(seed), system,
                 std::string(result.status().message()).c_str());
    return false;
  }
  std::fprintf(stderr, "%s; slowest %.1f Mbit/s, %.1f s, %d moves\n", result->phase.name.c_str(),
               result->goodput_min_mbps, result->completion_s, static_cast<int>(result->moves));
  if (std::getenv("BENCH_VERBOSE") != nullptr) {
    for (const double goodput : result->goodput_mbps) std::fprintf(stderr, "  %.1f", goodput);
    std::fprintf(stderr, " Mbit/s\n");
    for (const cw::lab::Mark& mark : result->decisions)
      std::fprintf(stderr, "  %.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
  into.Add(*result);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seeds = std::getenv("BENCH_FULL") != nullptr ? 40 : 20;
  if (const char* given = std::getenv("BENCH_SEEDS");
      given != nullptr && (!absl::SimpleAtoi(given, &seeds) || seeds == 0)) {
    std::fprintf(stderr, "BENCH_SEEDS: '%s' is no number of seeds above 0\n", given);
    return 2;
  }
  const char* only = std::getenv("BENCH_SYSTEM");
  const bool peer = only == nullptr || std::string(only) != "cwfabric";
  Collected ecmp, steered, best;
  absl::StatusOr<uint64_t> best_seed = cw::lab::FindBestSeed(SpecOf(0, false), 1000);
  if (!best_seed.ok() || !Run(*best_seed, false, "best", best)) return 1;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    if ((peer && !Run(seed, false, "ecmp", ecmp)) || !Run(seed, true, "cwfabric", steered)) return 1;
  }
  cw::bench::Report report("contention");
  if (peer) ecmp.Report(report, "ecmp");
  steered.Report(report, "cwfabric");
  best.Report(report, "best");
  std::vector<double> share;
  for (double goodput : steered.goodput) share.push_back(100 * goodput / best.goodput[0]);
  report.Add(kCase, "cwfabric", "goodput_min_of_best", "percent", share);
  const std::string out = cw::bench::OutPath(argc, argv, "build/bench/contention.json");
  if (absl::Status status = report.Write(out); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
