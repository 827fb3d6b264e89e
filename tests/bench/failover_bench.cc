// SPDX-License-Identifier: Apache-2.0
// Recovery from faults of a spine, idle and under load, beside kernel ECMP with static routes and with FRR (BGP and BFD)
// in the same run. BENCH_FULL=1 makes more cuts, BENCH_CUTS=20 so many.
#include <algorithm>
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
  double drop_share = 0;
  int hold_ms = 400;  // of a cut
  bool tails = false;
};

// What a smaller share of lost packets takes to see is longer; the default timers of BFD see a cut after 0.9 s.
constexpr Case kCases[] = {
    {"silent_forward", CutKind::kForward, 0, "protect"},
    {"silent_forward_50", CutKind::kForward, 0.5, "optimize"},
    {"silent_forward_90", CutKind::kForward, 0.9, "optimize"},
    {"silent_reverse", CutKind::kReverse, 0, "protect"},
    {"silent_both", CutKind::kBoth, 0, "protect"},
    {"data_only", CutKind::kDataOnly, 0, "protect"},
    {"link_down", CutKind::kLinkDown, 0, "protect"},
    {"partial_50", CutKind::kShare, 0, "protect", 0.5, 1000},
    {"partial_10", CutKind::kShare, 0, "protect", 0.1, 1000},
    {"partial_1", CutKind::kShare, 0, "protect", 0.01, 3000},
    {"pause_1", CutKind::kPause, 0, "protect", 0, 1},
    {"pause_5", CutKind::kPause, 0, "protect", 0, 5},
    {"pause_20", CutKind::kPause, 0, "protect", 0, 20},
    {"pause_100", CutKind::kPause, 0, "protect", 0, 100},
    {"pause_500", CutKind::kPause, 0, "protect", 0, 500},
    {"pause_storm", CutKind::kStorm, 0, "protect", 0, 1000},
    {"tail_forward", CutKind::kForward, 0, "protect", 0, 400, true},
    {"tail_reverse", CutKind::kReverse, 0, "protect", 0, 400, true},
    {"tail_both", CutKind::kBoth, 0, "protect", 0, 400, true},
};

struct System {
  const char* name;
  bool agents = false;
  int bfd_ms = 0;  // 0: static routes
  int hold_ms = 0;  // at least, of a cut
};
constexpr System kSystems[] = {{"ecmp"}, {"frr_bfd_10ms", false, 10, 2500}, {"frr_bfd_default", false, 300, 2500}, {"cwfabric", true}};

int Cuts(const System& system, bool full) {
  int cuts = 0;
  if (const char* wanted = std::getenv("BENCH_CUTS"); wanted != nullptr && (cuts = std::atoi(wanted)) > 0) return cuts;
  if (system.agents) return full ? 100 : 30;
  return full ? 20 : 5;
}

FailoverSpec SpecOf(const Case& c, const System& system, bool full) {
  FailoverSpec spec;
  spec.testbed.fabric = {.lab = "benchfo", .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agents = system.agents;
  spec.testbed.mode = c.mode;
  if (system.bfd_ms > 0) spec.frr = cw::lab::FrrSpec{.bfd_interval = absl::Milliseconds(system.bfd_ms)};
  spec.kind = c.kind;
  spec.drop_share = c.drop_share;
  spec.tails = c.tails;
  if (c.tails) spec.testbed.adjust = [](int, cw::config::Config& config) { config.steering.repair_tails = true; };
  spec.background_share = c.background;
  spec.cuts = Cuts(system, full);
  const bool pause = c.kind == CutKind::kPause || c.kind == CutKind::kStorm;  // its length is the case
  spec.hold = absl::Milliseconds(pause ? c.hold_ms : std::max(c.hold_ms, system.hold_ms));
  if (pause) spec.settle = absl::Milliseconds(300);
  if (pause && c.hold_ms > 500) spec.cuts = std::max(3, spec.cuts / 3);
  return spec;
}

void AddRows(cw::bench::Report& report, const Case& c, const char* system, const FailoverResult& result) {
  const char* name = c.name;
  if (c.tails) {  // where nothing follows, there is no recovery but the end of the stall
    report.Add(name, system, "stall", "ms", result.CutStalls());
    report.Add(name, system, "resends_asked", "count", {static_cast<double>(result.resends_asked)});
  } else {
    report.Add(name, system, c.kind == CutKind::kShare ? "left" : "recovery", "ms",
               c.kind == CutKind::kShare ? result.AllLeft() : result.AllRecoveries());
    report.Add(name, system, "not_recovered", "count", {static_cast<double>(result.NotRecovered())});
    report.Add(name, system, "stall", "ms", result.stall_ms);
  }
  report.Add(name, system, "flows_lost", "count", {static_cast<double>(result.flows_lost)});
  report.Add(name, system, "wrong_verdicts", "count", {static_cast<double>(result.wrong_verdicts)});
  if (c.kind == CutKind::kPause || c.kind == CutKind::kStorm) {
    report.Add(name, system, "told_paused", "count", {static_cast<double>(result.paused_verdicts)});
    report.Add(name, system, "moves", "count", {static_cast<double>(result.moves)});
  }
  report.Add(name, system, "load", "percent", {100 * result.load_share});
}

// What a reader of the log wants to see at once: the spread, and each verdict that no cut explains (BENCH_VERBOSE=1: all).
void Explain(const FailoverResult& result) {
  std::vector<double> all = result.AllRecoveries();
  if (all.empty()) all = result.AllLeft();
  std::fprintf(stderr, "  load %.0f %%, recovery p50 %.1f p99 %.1f max %.1f ms, %d not recovered, %d lost, %d wrong verdicts, %d times told paused\n", 100 * result.load_share,
               cw::lab::Quantile(all, 0.5), cw::lab::Quantile(all, 0.99), cw::lab::Quantile(all, 1), result.NotRecovered(), result.flows_lost, result.wrong_verdicts, result.paused_verdicts);
  std::fprintf(stderr, "  stalls per cut p50 %.1f p99 %.1f max %.1f ms, %d resends asked for\n", cw::lab::Quantile(result.CutStalls(), 0.5), cw::lab::Quantile(result.CutStalls(), 0.99),
               cw::lab::Quantile(result.CutStalls(), 1), static_cast<int>(result.resends_asked));
  for (const cw::lab::Mark& mark : result.phase.marks) {
    const bool event = mark.kind == "fault" || mark.kind == "dead" || mark.kind == "path";
    if (mark.text.rfind("WRONG", 0) == 0 || (event && std::getenv("BENCH_VERBOSE") != nullptr)) std::fprintf(stderr, "  %.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool full = std::getenv("BENCH_FULL") != nullptr;
  cw::bench::Report report("failover");
  const char* only = std::getenv("BENCH_CASE");  // one case, one system, while working on it
  const char* only_system = std::getenv("BENCH_SYSTEM");
  for (const Case& c : kCases) {
    const bool pauses = only != nullptr && std::string(only) == "pause" && std::string(c.name).rfind("pause_", 0) == 0;
    if (only != nullptr && std::string(only) != c.name && !pauses) continue;
    for (const System& system : kSystems) {
      if (only_system != nullptr && std::string(only_system) != system.name) continue;
      std::fprintf(stderr, "%s, %s ...\n", c.name, system.name);
      absl::StatusOr<FailoverResult> result = cw::lab::RunFailover(SpecOf(c, system, full));
      if (!result.ok()) {
        std::fprintf(stderr, "%s, %s: %s\n", c.name, system.name, std::string(result.status().message()).c_str());
        return 1;
      }
      AddRows(report, c, system.name, *result);
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
