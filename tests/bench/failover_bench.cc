// SPDX-License-Identifier: Apache-2.0
// Recovery from silent one-direction cuts of a spine, idle and under load, beside kernel ECMP in the same run.
// BENCH_FULL=1 makes more cuts.
#include <cstdio>
#include <cstdlib>

#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_failover.h"

namespace {

using cw::lab::CutKind;
using cw::lab::FailoverResult;
using cw::lab::FailoverSpec;

struct Case {
  const char* name;
  CutKind kind;
  double background;
  const char* mode;  // loaded cases need flows to be spread again after each cut, or the load gathers on a few links
};

constexpr Case kCases[] = {
    {"silent_forward", CutKind::kForward, 0, "protect"},
    {"silent_forward_50", CutKind::kForward, 0.5, "optimize"},
    {"silent_forward_90", CutKind::kForward, 0.9, "optimize"},
    {"silent_reverse", CutKind::kReverse, 0, "protect"},
    {"silent_both", CutKind::kBoth, 0, "protect"},
};

FailoverSpec SpecOf(const Case& c, bool agents, bool full) {
  FailoverSpec spec;
  spec.testbed.fabric = {.lab = "benchfo", .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agents = agents;
  spec.testbed.mode = c.mode;
  spec.kind = c.kind;
  spec.background_share = c.background;
  spec.cuts = agents ? (full ? 100 : 30) : 5;
  return spec;
}

void AddRows(cw::bench::Report& report, const char* name, const char* system, const FailoverResult& result) {
  report.Add(name, system, "recovery", "ms", result.AllRecoveries());
  report.Add(name, system, "not_recovered", "count", {static_cast<double>(result.NotRecovered())});
  report.Add(name, system, "stall", "ms", result.stall_ms);
  report.Add(name, system, "flows_lost", "count", {static_cast<double>(result.flows_lost)});
  report.Add(name, system, "wrong_verdicts", "count", {static_cast<double>(result.wrong_verdicts)});
  report.Add(name, system, "load", "percent", {100 * result.load_share});
}

// What a reader of the log wants to see at once: the spread, and each verdict that no cut explains (BENCH_VERBOSE=1: all).
void Explain(const FailoverResult& result) {
  const std::vector<double> all = result.AllRecoveries();
  std::fprintf(stderr, "  load %.0f %%, recovery p50 %.1f p99 %.1f max %.1f ms, %d not recovered, %d lost, %d wrong verdicts\n", 100 * result.load_share,
               cw::lab::Quantile(all, 0.5), cw::lab::Quantile(all, 0.99), cw::lab::Quantile(all, 1), result.NotRecovered(), result.flows_lost, result.wrong_verdicts);
  for (const cw::lab::Mark& mark : result.phase.marks) {
    const bool event = mark.kind == "fault" || mark.kind == "dead";
    if (mark.text.rfind("WRONG", 0) == 0 || (event && std::getenv("BENCH_VERBOSE") != nullptr)) std::fprintf(stderr, "  %.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool full = std::getenv("BENCH_FULL") != nullptr;
  cw::bench::Report report("failover");
  const char* only = std::getenv("BENCH_CASE");  // one case, while working on it
  for (const Case& c : kCases) {
    if (only != nullptr && std::string(only) != c.name) continue;
    for (bool agents : {false, true}) {
      const char* system = agents ? "cwfabric" : "ecmp";
      std::fprintf(stderr, "%s, %s ...\n", c.name, system);
      absl::StatusOr<FailoverResult> result = cw::lab::RunFailover(SpecOf(c, agents, full));
      if (!result.ok()) {
        std::fprintf(stderr, "%s, %s: %s\n", c.name, system, std::string(result.status().message()).c_str());
        return 1;
      }
      AddRows(report, c.name, system, *result);
      Explain(*result);
    }
  }
  const std::string out = cw::bench::OutPath(argc, argv, "build/bench/failover.json");
  if (absl::Status status = report.Write(out); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
