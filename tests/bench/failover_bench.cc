// SPDX-License-Identifier: Apache-2.0
// Recovery from faults of a spine, idle and under load, beside kernel ECMP with static routes and with FRR (BGP and
// BFD) in the same run. BENCH_FULL=1 makes more cuts and all peers' cases, BENCH_CUTS=20 so many; BENCH_CASE and
// BENCH_SYSTEM take comma lists (a case's name, or what it begins with: pause is all of pause_1 … pause_storm).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_failover.h"

namespace {

using cw::bench::Wanted;
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
  bool frr = false;  // FRR runs it, too, without BENCH_FULL: one of each kind of fault
};

// What a smaller share of lost packets takes to see is longer; the default timers of BFD see a cut after 0.9 s.
constexpr Case kCases[] = {
    {"silent_forward", CutKind::kForward, 0, "protect", 0, 400, false, true},
    {"silent_forward_50", CutKind::kForward, 0.5, "optimize"},
    {"silent_forward_90", CutKind::kForward, 0.9, "optimize"},
    {"silent_reverse", CutKind::kReverse, 0, "protect", 0, 400, false, true},
    {"silent_both", CutKind::kBoth, 0, "protect", 0, 400, false, true},
    {"data_only", CutKind::kDataOnly, 0, "protect", 0, 400, false, true},
    {"link_down", CutKind::kLinkDown, 0, "protect", 0, 400, false, true},
    {"spine_reboot", CutKind::kReboot, 0, "protect", 0, 1000, false, true},
    {"partial_50", CutKind::kShare, 0, "protect", 0.5, 1000, false, true},
    {"partial_10", CutKind::kShare, 0, "protect", 0.1, 1000, false, true},
    {"partial_1", CutKind::kShare, 0, "protect", 0.01, 3000, false, true},
    {"corrupt_10", CutKind::kCorrupt, 0, "protect", 0.1, 1000, false, true},
    {"pause_1", CutKind::kPause, 0, "protect", 0, 1},
    {"pause_5", CutKind::kPause, 0, "protect", 0, 5},
    {"pause_20", CutKind::kPause, 0, "protect", 0, 20},
    {"pause_100", CutKind::kPause, 0, "protect", 0, 100, false, true},
    {"pause_500", CutKind::kPause, 0, "protect", 0, 500},
    {"pause_storm", CutKind::kStorm, 0, "protect", 0, 1000},
    {"tail_forward", CutKind::kForward, 0, "protect", 0, 400, true},
    {"tail_reverse", CutKind::kReverse, 0, "protect", 0, 400, true},
    {"tail_both", CutKind::kBoth, 0, "protect", 0, 400, true},
};

struct System {
  const char* name;
  bool agents = false;
  int bfd_ms = 0;   // 0: static routes
  int hold_ms = 0;  // at least, of a cut
};
constexpr System kSystems[] = {
    {"ecmp"}, {"frr_bfd_10ms", false, 10, 2500}, {"frr_bfd_default", false, 300, 2500}, {"cwfabric", true}};

template <typename All>
std::vector<std::string> NamesOf(const All& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.emplace_back(one.name);
  return names;
}

int Cuts(const System& system, bool full) {
  int cuts = 0;
  if (const char* wanted = std::getenv("BENCH_CUTS"); wanted != nullptr && (cuts = std::atoi(wanted)) > 0) return cuts;
  if (system.agents) return full ? 100 : 15;
  return full ? 20 : system.bfd_ms > 0 ? 2 : 3;
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
  // Where the fault's length is the case, it is the same for all.
  const bool own_length = cw::lab::IsPause(c.kind) || c.kind == CutKind::kReboot;
  spec.hold = absl::Milliseconds(own_length ? c.hold_ms : std::max(c.hold_ms, system.hold_ms));
  if (cw::lab::IsPause(c.kind)) spec.settle = absl::Milliseconds(300);
  if (cw::lab::IsPause(c.kind) && c.hold_ms > 500) spec.cuts = std::min(spec.cuts, std::max(3, spec.cuts / 3));
  return spec;
}

std::vector<double> Of(const FailoverResult& result, double cw::lab::CutResult::*field) {
  std::vector<double> all;
  for (const cw::lab::CutResult& cut : result.cuts) all.push_back(cut.*field);
  return all;
}

void AddRows(cw::bench::Report& report, const Case& c, const char* system, const FailoverResult& result) {
  const char* name = c.name;
  const auto count = [&](const char* metric, double value) { report.Add(name, system, metric, "count", {value}); };
  if (c.tails) {  // where nothing follows, there is no recovery but the end of the stall
    count("resends_asked", static_cast<double>(result.resends_asked));
  } else {
    report.Add(name, system, "recovery", "ms", result.AllRecoveries());
    report.Add(name, system, "recovery_undisturbed", "ms", result.AllRecoveries(/*undisturbed=*/true));
    count("not_recovered", result.NotRecovered());
    // What is held back has left no trace where it would go.
    if (!cw::lab::IsPause(c.kind)) count("still_on_path", result.StillOnPath());
  }
  report.Add(name, system, "stall", "ms", result.CutStalls());
  report.Add(name, system, "stall_undisturbed", "ms", result.CutStalls(/*undisturbed=*/true));
  report.Add(name, system, "machine_stall", "ms", Of(result, &cw::lab::CutResult::machine_stall_ms));
  count("flows_lost", result.flows_lost);
  count("wrong_verdicts", result.wrong_verdicts);
  if (cw::lab::IsPause(c.kind)) {
    report.Add(name, system, "paused", "ms", Of(result, &cw::lab::CutResult::paused_ms));
    report.Add(name, system, "held", "ms", Of(result, &cw::lab::CutResult::held_ms));
    count("told_paused", result.paused_verdicts);
    count("moves", static_cast<double>(result.moves));
  }
  if (c.kind == CutKind::kCorrupt) count("icrc_errors", static_cast<double>(result.icrc_errors));
  report.Add(name, system, "load", "percent", {100 * result.load_share});
}

std::string Spread(const std::vector<double>& ms) {
  if (ms.empty()) return "never";
  using cw::lab::Quantile;
  return absl::StrFormat("p50 %.1f p99 %.1f max %.1f ms", Quantile(ms, 0.5), Quantile(ms, 0.99), Quantile(ms, 1));
}

// What a reader of the log wants to see at once: the spread, and each verdict that no cut explains (BENCH_VERBOSE=1:
// all).
void Explain(const FailoverResult& result) {
  std::fprintf(stderr,
               "  load %.0f %%, recovery %s, %d not recovered, %d still on the path, %d lost, %d wrong verdicts, %d "
               "times told paused\n",
               100 * result.load_share, Spread(result.AllRecoveries()).c_str(), result.NotRecovered(),
               result.StillOnPath(), result.flows_lost, result.wrong_verdicts, result.paused_verdicts);
  std::fprintf(stderr, "  stalls per cut %s, %d resends asked for\n", Spread(result.CutStalls()).c_str(),
               static_cast<int>(result.resends_asked));
  std::fprintf(stderr, "  the machine stood still about %d cuts; without these recovery %s, stalls %s\n",
               result.Disturbed(), Spread(result.AllRecoveries(true)).c_str(), Spread(result.CutStalls(true)).c_str());
  for (const cw::lab::Mark& mark : result.phase.marks) {
    const bool event = mark.kind == "fault" || mark.kind == "dead" || mark.kind == "path";
    const bool wrong = absl::StartsWith(mark.text, "WRONG");
    if (wrong || (event && std::getenv("BENCH_VERBOSE") != nullptr))
      std::fprintf(stderr, "  %.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool full = std::getenv("BENCH_FULL") != nullptr;
  const auto cases = Wanted::Parse(std::getenv("BENCH_CASE"), NamesOf(kCases));
  const auto systems = Wanted::Parse(std::getenv("BENCH_SYSTEM"), NamesOf(kSystems));
  for (const auto* wanted : {&cases, &systems}) {
    if (wanted->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(wanted->status().message()).c_str());
    return 2;
  }
  cw::bench::Report report("failover");
  for (const Case& c : kCases) {
    if (!cases->Has(c.name)) continue;
    for (const System& system : kSystems) {
      if (!systems->Has(system.name)) continue;
      if (system.bfd_ms > 0 && !c.frr && !full && cases->all()) continue;
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
