// SPDX-License-Identifier: Apache-2.0
// Recovery from faults of a spine, a host or an agent, idle and under load, beside kernel ECMP with static routes and
// with FRR (BGP and BFD) in the same run. BENCH_FULL=1 makes more cuts and all peers' cases, BENCH_CUTS=20 so many;
// BENCH_CASE and BENCH_SYSTEM take comma lists (a case's name, or what it begins with: pause is all of pause_1 …
// pause_storm). BENCH_TIMEOUT is the queue pairs' timer where the case has none of its own (14: 67 ms);
// BENCH_AGENT_AWAY_S how long an agent was gone when a spine is cut (3, 60 with BENCH_FULL).
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tests/bench/failover_cases.h"
#include "tests/bench/failover_table.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_failover.h"

namespace {

using cw::bench::FailoverCase;
using cw::bench::FailoverSystem;
using cw::bench::Wanted;
using cw::lab::CutKind;
using cw::lab::FailoverResult;

template <typename All>
std::vector<std::string> NamesOf(const All& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.emplace_back(one.name);
  return names;
}

std::vector<double> Of(const FailoverResult& result, double cw::lab::CutResult::*field) {
  std::vector<double> all;
  for (const cw::lab::CutResult& cut : result.cuts) all.push_back(cut.*field);
  return all;
}

void AddRecovery(cw::bench::Report& report, const FailoverCase& c, const char* system, const FailoverResult& result) {
  const auto count = [&](const char* metric, double value) { report.Add(c.name, system, metric, "count", {value}); };
  report.Add(c.name, system, "recovery", "ms", result.AllRecoveries());
  report.Add(c.name, system, "recovery_undisturbed", "ms", result.AllRecoveries(/*undisturbed=*/true));
  count("not_recovered", result.NotRecovered());
  // What is held back has left no trace where it would go.
  if (!cw::lab::IsPause(c.kind) && !cw::lab::IsHost(c.kind)) count("still_on_path", result.StillOnPath());
}

void AddRows(cw::bench::Report& report, const FailoverCase& c, const FailoverSystem& of, const FailoverResult& result) {
  const char *name = c.name, *system = of.name;
  const auto count = [&](const char* metric, double value) { report.Add(name, system, metric, "count", {value}); };
  if (cw::bench::HasRecovery(c)) AddRecovery(report, c, system, result);
  if (c.tails) count("resends_asked", static_cast<double>(result.resends_asked));
  report.Add(name, system, "stall", "ms", result.CutStalls());
  report.Add(name, system, "stall_undisturbed", "ms", result.CutStalls(/*undisturbed=*/true));
  report.Add(name, system, "machine_stall", "ms", Of(result, &cw::lab::CutResult::machine_stall_ms));
  count("cuts", static_cast<double>(result.cuts.size()));
  count("flows_lost", result.flows_lost);
  count("wrong_verdicts", result.wrong_verdicts);
  if (of.agents) {
    count("kernel_deaths", static_cast<double>(result.kernel_deaths));
    count("deaths_elsewhere", static_cast<double>(result.deaths_elsewhere));
    count("deaths_untraced", static_cast<double>(result.deaths_untraced));
    if (cw::lab::IsPeer(c.kind)) count("told_as_peer", result.ToldAsPeer());
    if (c.agent_fault != cw::lab::AgentFault::kNone) {
      count("moves_blind", static_cast<double>(result.moves_blind));
      count("moves_without_fault", static_cast<double>(result.moves_without_fault));
    }
  }
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
  if (!result.ended_early.empty()) std::fprintf(stderr, "  %s\n", result.ended_early.c_str());
  std::fprintf(stderr, "  %d paths died in the kernels, %d of them over links that were whole, %d untraced\n",
               static_cast<int>(result.kernel_deaths), static_cast<int>(result.deaths_elsewhere),
               static_cast<int>(result.deaths_untraced));
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

absl::Status RunOne(const FailoverCase& c, const FailoverSystem& system, const cw::bench::Settings& settings,
                    cw::bench::Report& report, cw::bench::FaultTable& table) {
  std::fprintf(stderr, "%s, %s ...\n", c.name, system.name);
  const absl::StatusOr<FailoverResult> result = cw::lab::RunFailover(SpecOf(c, system, settings));
  if (!result.ok()) {
    table.SetFailed(c.name, system.name);
    const absl::Status status(result.status().code(), absl::StrFormat("%s, %s: %s", c.name, system.name,
                                                                      std::string(result.status().message())));
    std::fprintf(stderr, "  %s\n", std::string(status.message()).c_str());
    return status;
  }
  AddRows(report, c, system, *result);
  table.SetMeasured(
      c.name, system.name,
      {.has_recovery = cw::bench::HasRecovery(c),
       .recovery_ms = result->AllRecoveries(),
       .not_recovered = result->NotRecovered(),
       .stall_ms = result->CutStalls(),
       .ended_after =
           result->ended_early.empty() ? std::nullopt : std::optional(static_cast<int>(result->cuts.size()))});
  Explain(*result);
  return absl::OkStatus();
}

// Runs what is wanted, into `report` and `table`. A case that fails stops no other; the first failure is returned. What
// is there after each is written to `so_far`, because a run of an hour may be ended from outside.
absl::Status RunAll(const Wanted& cases, const Wanted& systems, const cw::bench::Settings& settings,
                    const std::string& so_far, cw::bench::Report& report, cw::bench::FaultTable& table) {
  absl::Status all;
  for (const FailoverCase& c : cw::bench::FailoverCases()) {
    if (!cases.Has(c.name)) continue;
    for (const FailoverSystem& system : cw::bench::FailoverSystems()) {
      const cw::bench::Sight sight = SightOf(system, c);
      if (sight != cw::bench::Sight::kMay) table.SetSight(c.name, system.name, sight);
      if (!systems.Has(system.name) || sight == cw::bench::Sight::kNoAgent) continue;
      if (system.bfd_ms > 0 && !c.frr && !settings.full && cases.all()) continue;
      all.Update(RunOne(c, system, settings, report, table));
      if (absl::Status written = report.Write(so_far); !written.ok()) return written;
    }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> all_cases = NamesOf(cw::bench::FailoverCases());
  const std::vector<std::string> all_systems = NamesOf(cw::bench::FailoverSystems());
  const auto cases = Wanted::Parse(std::getenv("BENCH_CASE"), all_cases);
  const auto systems = Wanted::Parse(std::getenv("BENCH_SYSTEM"), all_systems);
  const auto settings = cw::bench::Settings::FromEnvironment();
  for (const absl::Status& status : {cases.status(), systems.status(), settings.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 2;
  }
  cw::bench::Report report("failover");
  cw::bench::FaultTable table(all_systems);
  const std::string path = cw::bench::OutPath(argc, argv, "build/bench/failover.json"), so_far = path + ".incomplete";
  absl::Status status = RunAll(*cases, *systems, *settings, so_far, report, table);
  std::printf("%s\n%s", report.Table().c_str(), table.Text().c_str());
  if (status.ok()) status = report.Write(path);
  if (status.ok()) {
    std::remove(so_far.c_str());
    return 0;
  }
  std::fprintf(stderr, "%s\nthe rows of all other cases are in %s\n", std::string(status.message()).c_str(),
               so_far.c_str());
  return 1;
}
