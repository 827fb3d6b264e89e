// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/scenario.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/lab/clock_report.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/experiment_failover.h"

namespace cw::lab {
namespace {

using nlohmann::json;

// Reads keys with their types checked, and knows which were read: a key that nobody asked for is an error.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  template <typename T>
  void Read(const char* key, T* value) {
    known_.insert(key);
    auto it = object_.find(key);
    if (it == object_.end()) return;
    const bool fits = std::is_same_v<T, std::string> ? it->is_string() : it->is_number();
    if (!fits) {
      status_.Update(absl::InvalidArgumentError(
          absl::StrCat(where_, ": \"", key, "\" must be a ", std::is_same_v<T, std::string> ? "string" : "number")));
      return;
    }
    *value = it->get<T>();
  }
  void Known(const char* key) { known_.insert(key); }
  absl::Status Done() {
    for (const auto& [key, value] : object_.items()) {
      if (known_.count(key) == 0) {
        status_.Update(absl::InvalidArgumentError(
            absl::StrCat(where_, ": unknown key \"", key, "\"; one of ", absl::StrJoin(known_, ", "))));
      }
    }
    return status_;
  }

 private:
  const json& object_;
  std::string where_;
  std::set<std::string> known_;
  absl::Status status_;
};

struct Common {
  std::string title, kind, mode = "optimize";
  uint64_t seed = 1;
  TestbedSpec testbed;
};

absl::Status ReadFabric(const json& file, const std::string& name, FabricSpec* fabric) {
  static const json kNone = json::object();
  Reader reader(file.contains("fabric") ? file["fabric"] : kNone, name + ": fabric");
  reader.Read("spines", &fabric->spines);
  reader.Read("hosts_per_leaf", &fabric->hosts_per_leaf);
  reader.Read("link_mbps", &fabric->link_mbps);
  reader.Read("ecmp_seed", &fabric->ecmp_seed);
  return reader.Done();
}

Report MakeReport(const std::string& title, Table table, Phase phase) {
  return {.title = title,
          .headline = "",
          .notes = {},
          .comparisons = {},
          .tables = {std::move(table)},
          .phases = {std::move(phase)}};
}

absl::StatusOr<ScenarioOutcome> Failover(Reader& reader, const Common& common) {
  FailoverSpec spec;
  spec.testbed = common.testbed;
  spec.seed = common.seed;
  std::string cut = "forward";
  reader.Read("cut", &cut);
  reader.Read("cuts", &spec.cuts);
  reader.Read("flows", &spec.flows);
  reader.Read("background", &spec.background_share);
  if (absl::Status status = reader.Done(); !status.ok()) return status;
  if (cut != "forward" && cut != "reverse" && cut != "both")
    return absl::InvalidArgumentError("\"cut\" must be forward, reverse or both");
  spec.kind = cut == "forward" ? CutKind::kForward : cut == "reverse" ? CutKind::kReverse : CutKind::kBoth;
  absl::StatusOr<FailoverResult> result = RunFailover(spec);
  if (!result.ok()) return result.status();
  const std::string system = common.testbed.agents ? "cwfabric" : "ecmp";
  const std::vector<double> all = result->AllRecoveries();
  Table table{.title = "Recovery of flows on the cut path", .header = {"", system}, .rows = {}};
  table.rows = {{"recovery, median", absl::StrFormat("%.1f ms", Quantile(all, 0.5))},
                {"recovery, p99", absl::StrFormat("%.1f ms", Quantile(all, 0.99))},
                {"stood still until the repair", absl::StrCat(result->NotRecovered())},
                {"longest stall", absl::StrFormat("%.1f ms", Quantile(result->flow_stall_ms, 1))},
                {"queue pairs lost", absl::StrCat(result->flows_lost)},
                {kWrongTitle, WrongText(*result)}};
  result->phase.name = system;
  const std::string name = "silent_" + cut;
  ScenarioOutcome outcome{MakeReport(common.title, std::move(table), std::move(result->phase)),
                          bench::Report("failover")};
  outcome.result.Add(name, system, "recovery", "ms", all);
  outcome.result.Add(name, system, "stall", "ms", result->flow_stall_ms);
  outcome.result.Add(name, system, "flows_lost", "count", {static_cast<double>(result->flows_lost)});
  outcome.result.Add(name, system, "wrong_verdicts", "count", {static_cast<double>(result->wrong_verdicts)});
  return outcome;
}

absl::StatusOr<ScenarioOutcome> Contention(Reader& reader, const Common& common) {
  ContentionSpec spec;
  spec.testbed = common.testbed;
  spec.testbed.active_interval = absl::Milliseconds(5);
  spec.seed = common.seed;
  double seconds = 10;
  reader.Read("flows_per_sender", &spec.flows_per_sender);
  reader.Read("seconds", &seconds);
  if (absl::Status status = reader.Done(); !status.ok()) return status;
  spec.best_duration = absl::Seconds(seconds);
  absl::StatusOr<ContentionResult> result = RunContention(spec);
  if (!result.ok()) return result.status();
  const std::string system = common.testbed.agents ? "cwfabric" : "ecmp";
  Table table{.title = "Slowest queue pair", .header = {"", system}, .rows = {}};
  table.rows = {{"goodput", absl::StrFormat("%.1f Mbit/s", result->goodput_min_mbps)},
                {"upper limit of any assignment", absl::StrFormat("%.1f Mbit/s", BestGoodputMbps(spec))},
                {"completion", absl::StrFormat("%.1f s", result->completion_s)},
                {"flows per spine at first", absl::StrJoin(result->initial_flows_per_spine, "+")},
                {"flows per spine in the end", absl::StrJoin(result->final_flows_per_spine, "+")},
                {"moves", absl::StrCat(result->moves)}};
  ScenarioOutcome outcome{MakeReport(common.title, std::move(table), std::move(result->phase)),
                          bench::Report("contention")};
  outcome.result.Add("pairwise", system, "goodput_min", "Mbit/s", {result->goodput_min_mbps});
  outcome.result.Add("pairwise", system, "completion", "s", {result->completion_s});
  outcome.result.Add("pairwise", system, "owd_p99", "us", {result->owd_p99_us});
  outcome.result.Add("pairwise", system, "moves", "count", {static_cast<double>(result->moves)});
  return outcome;
}

// Each host another offset and another drift, within what the file says.
std::vector<HiddenClockSpec> HiddenClocks(int hosts, double offset_s, double drift_ppm, double segment_s,
                                          uint64_t seed) {
  std::vector<HiddenClockSpec> clocks;
  for (int host = 0; host < hosts; ++host) {
    const double share = (host % 2 == 0 ? 1.0 : -1.0) * (hosts - host) / hosts;
    clocks.push_back({.offset_ns = static_cast<int64_t>(share * offset_s * 1e9),
                      .drift_ppm = share * drift_ppm,
                      .segment_s = segment_s,
                      .seed = static_cast<uint32_t>(seed) + static_cast<uint32_t>(host)});
  }
  return clocks;
}

absl::StatusOr<ScenarioOutcome> FleetClock(Reader& reader, const Common& common) {
  ClockSpec spec;
  spec.testbed = common.testbed;
  spec.seed = common.seed;
  double offset_s = 1, drift_ppm = 100, segment_s = 30, seconds = 30;
  reader.Read("offset_s", &offset_s);
  reader.Read("drift_ppm", &drift_ppm);
  reader.Read("segment_s", &segment_s);
  reader.Read("load", &spec.load);
  reader.Read("seconds", &seconds);
  if (absl::Status status = reader.Done(); !status.ok()) return status;
  if (!spec.testbed.agents)
    return absl::InvalidArgumentError("\"mode\" must not be none: there is no fleet time without agents");
  spec.length = absl::Seconds(seconds);
  spec.testbed.all_hosts = true;
  spec.testbed.probe_budget_pps = 2000;
  spec.testbed.clock_neighbours = 4;
  const FabricSpec& fabric = spec.testbed.fabric;
  spec.testbed.clocks =
      HiddenClocks(fabric.leaves * fabric.hosts_per_leaf, offset_s, drift_ppm, segment_s, common.seed);
  absl::StatusOr<ClockResult> result = RunClock(spec);
  if (!result.ok()) return result.status();
  std::vector<double> error, error_est, bound;
  for (const FleetPair& sample : result->samples) {
    error.push_back(std::abs(sample.difference_ns));
    error_est.push_back(sample.error_est_ns);
    bound.push_back(sample.bound_ns);
  }
  ScenarioOutcome outcome{MakeReport(common.title, std::move(result->table), std::move(result->phase)),
                          bench::Report("clock")};
  outcome.report.notes = {absl::StrFormat("Of %d readings of all hosts' fleet times at one instant, %d were refused.",
                                          result->readings, result->refused)};
  outcome.result.Add("hidden_clocks", "cwfabric", "abs_error", "ns", error);
  outcome.result.Add("hidden_clocks", "cwfabric", "error_est", "ns", error_est);
  outcome.result.Add("hidden_clocks", "cwfabric", "bound", "ns", bound);
  return outcome;
}

}  // namespace

absl::StatusOr<ScenarioOutcome> RunScenario(const std::string& file, const std::string& lab) {
  std::ifstream stream(file);
  if (!stream)
    return absl::NotFoundError(absl::StrCat("no scenario file ", file, "; there are some in userspace/lab/scenarios"));
  const json document = json::parse(stream, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!document.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, ": not a JSON object"));
  Reader reader(document, file);
  Common common;
  common.title = file;
  reader.Read("title", &common.title);
  reader.Read("kind", &common.kind);
  reader.Read("mode", &common.mode);
  reader.Read("seed", &common.seed);
  reader.Known("fabric");
  common.testbed.fabric = {.lab = lab, .link_mbps = 200, .ecmp_seed = 1};
  if (absl::Status status = ReadFabric(document, file, &common.testbed.fabric); !status.ok()) return status;
  common.testbed.agents = common.mode != "none";
  if (common.testbed.agents) common.testbed.mode = common.mode;
  if (common.testbed.agents && common.mode != "observe" && common.mode != "protect" && common.mode != "optimize") {
    return absl::InvalidArgumentError(absl::StrCat(file, ": \"mode\" must be none, observe, protect or optimize"));
  }
  if (common.kind == "failover") return Failover(reader, common);
  if (common.kind == "contention") return Contention(reader, common);
  if (common.kind == "clock") return FleetClock(reader, common);
  return absl::InvalidArgumentError(absl::StrCat(file, ": \"kind\" must be failover, contention or clock"));
}

}  // namespace cw::lab
