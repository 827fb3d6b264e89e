// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/demo.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/report.h"

namespace cw::lab {
namespace {

struct Collected {
  std::vector<ContentionResult> ecmp, steered;
  ContentionResult best;
  FailoverResult ecmp_cut, steered_cut;
};

ContentionSpec Contention(const DemoSpec& spec, uint64_t seed, bool agents) {
  ContentionSpec contention;
  contention.testbed.fabric = {.lab = "demo", .hosts_per_leaf = 4, .link_mbps = 200, .ecmp_seed = 1};
  contention.testbed.agents = agents;
  contention.testbed.active_interval = absl::Milliseconds(5);  // eight agents share this machine
  contention.best_duration = absl::Seconds(spec.contention_s);
  contention.seed = seed;
  return contention;
}

FailoverSpec Failover(const DemoSpec& spec, bool agents) {
  FailoverSpec failover;
  failover.testbed.fabric = {.lab = "demo", .hosts_per_leaf = 1, .link_mbps = 200, .ecmp_seed = 1};
  failover.testbed.agents = agents;
  failover.testbed.mode = "protect";
  failover.background_share = 0.5;
  failover.cuts = agents ? spec.cuts : 3;
  return failover;
}

absl::Status RunContentionPart(const DemoSpec& spec, Collected& all) {
  for (uint64_t seed : spec.seeds) {
    for (bool agents : {false, true}) {
      std::fprintf(stderr, "  two jobs, 8 queue pairs, 4 spines, seed %d, %s ... ", static_cast<int>(seed),
                   agents ? "cwfabric" : "kernel ECMP");
      absl::StatusOr<ContentionResult> result = RunContention(Contention(spec, seed, agents));
      if (!result.ok()) return result.status();
      std::fprintf(stderr, "slowest queue pair %.1f Mbit/s\n", result->goodput_min_mbps);
      (agents ? all.steered : all.ecmp).push_back(*std::move(result));
    }
  }
  std::fprintf(stderr, "  the best assignment, all flows known ... ");
  ContentionSpec best_static = Contention(spec, spec.seeds.front(), false);
  best_static.best_static = true;
  absl::StatusOr<ContentionResult> best = RunContention(best_static);
  if (!best.ok()) return best.status();
  std::fprintf(stderr, "slowest queue pair %.1f Mbit/s\n", best->goodput_min_mbps);
  all.best = *std::move(best);
  return absl::OkStatus();
}

absl::Status RunFailoverPart(const DemoSpec& spec, Collected& all) {
  for (bool agents : {false, true}) {
    std::fprintf(stderr, "  a spine silently stops forwarding, 8 queue pairs, links half full, %s ... ",
                 agents ? "cwfabric" : "kernel ECMP");
    absl::StatusOr<FailoverResult> result = RunFailover(Failover(spec, agents));
    if (!result.ok()) return result.status();
    std::fprintf(stderr, "%d of %d stood still until the repair\n", result->NotRecovered(),
                 static_cast<int>(result->AllRecoveries().size()) + result->NotRecovered());
    result->phase.name = absl::StrFormat("%s, %d cuts", agents ? "cwfabric" : "kernel ECMP", result->cuts.size());
    (agents ? all.steered_cut : all.ecmp_cut) = *std::move(result);
  }
  return absl::OkStatus();
}

template <typename F>
std::vector<double> Values(const std::vector<ContentionResult>& results, F field) {
  std::vector<double> values;
  for (const ContentionResult& result : results) values.push_back(field(result));
  return values;
}

Table ContentionTable(const Collected& all) {
  Table table{.title = "Colliding queue pairs (median of the seeds; every seed in the second table)",
              .header = {"", "kernel ECMP", "cwfabric", "best assignment"},
              .rows = {}};
  auto row = [&](const char* name, int decimals, const char* unit, auto field) {
    auto cell = [&](double value) { return absl::StrFormat("%.*f%s", decimals, value, unit); };
    table.rows.push_back({name, cell(Quantile(Values(all.ecmp, field), 0.5)),
                          cell(Quantile(Values(all.steered, field), 0.5)), cell(field(all.best))});
  };
  row("goodput of the slowest queue pair", 1, " Mbit/s", [](const ContentionResult& r) { return r.goodput_min_mbps; });
  row("completion of the slowest queue pair", 1, " s", [](const ContentionResult& r) { return r.completion_s; });
  row("fullest uplink", 0, " %", [](const ContentionResult& r) { return 100 * r.worst_link_share; });
  row("one-way delay of data, median", 0, " µs", [](const ContentionResult& r) { return r.owd_p50_us; });
  row("one-way delay of data, p99", 0, " µs", [](const ContentionResult& r) { return r.owd_p99_us; });
  row("moves", 0, "", [](const ContentionResult& r) { return static_cast<double>(r.moves); });
  return table;
}

Table SeedTable(const Collected& all) {
  Table table{.title = "Every seed",
              .header = {"seed", "flows per spine by ECMP", "with cwfabric", "slowest, ECMP", "slowest, cwfabric"},
              .rows = {}};
  for (size_t i = 0; i < all.ecmp.size(); ++i) {
    table.rows.push_back({absl::StrCat(all.ecmp[i].seed), absl::StrJoin(all.ecmp[i].initial_flows_per_spine, "+"),
                          absl::StrJoin(all.steered[i].final_flows_per_spine, "+"),
                          absl::StrFormat("%.1f Mbit/s", all.ecmp[i].goodput_min_mbps),
                          absl::StrFormat("%.1f Mbit/s", all.steered[i].goodput_min_mbps)});
  }
  return table;
}

// "2 of 27": flows that stood still until the repair.
std::string StoodStill(const FailoverResult& r) {
  return absl::StrFormat("%d of %d", r.NotRecovered(), r.NotRecovered() + static_cast<int>(r.AllRecoveries().size()));
}

Table FailoverTable(const Collected& all) {
  auto recovery = [](const FailoverResult& r, double q) {
    return r.AllRecoveries().empty() ? std::string("never")
                                     : absl::StrFormat("%.1f ms", Quantile(r.AllRecoveries(), q));
  };
  auto column = [&](const FailoverResult& r) {
    return std::vector<std::string>{
        recovery(r, 0.5),
        recovery(r, 0.99),
        StoodStill(r),
        absl::StrFormat("%.1f ms", *std::max_element(r.flow_stall_ms.begin(), r.flow_stall_ms.end())),
        absl::StrFormat("%d of %d", r.flows_lost, r.flows),
        WrongText(r)};
  };
  const std::vector<std::string> names = {
      "recovery, median", "recovery, p99",    "flows that stood still until the repair",
      "longest stall",    "queue pairs lost", kWrongTitle};
  const std::vector<std::string> ecmp = column(all.ecmp_cut), steered = column(all.steered_cut);
  Table table{.title = absl::StrFormat("A spine silently stops forwarding for 0.4 s (%d cuts plain, %d with cwfabric)",
                                       all.ecmp_cut.cuts.size(), all.steered_cut.cuts.size()),
              .header = {"", "kernel ECMP", "cwfabric"},
              .rows = {}};
  for (size_t i = 0; i < names.size(); ++i) table.rows.push_back({names[i], ecmp[i], steered[i]});
  return table;
}

std::string Headline(const Collected& all) {
  const auto slowest = [](const ContentionResult& r) { return r.goodput_min_mbps; };
  const double plain = Quantile(Values(all.ecmp, slowest), 0.5);
  const std::string faster = plain > 0 ? absl::StrFormat("Slowest queue pair %.1f × as fast as by kernel ECMP; ",
                                                         Quantile(Values(all.steered, slowest), 0.5) / plain)
                                       : "";
  return absl::StrCat(faster, "when a spine died silently ", StoodStill(all.steered_cut),
                      " flows on it stood still until the repair, without cwfabric ", StoodStill(all.ecmp_cut), ".");
}

// The first cut in the middle of four seconds that begin one before it.
Comparison::Panel AroundTheFirstCut(const std::string& name, const FailoverResult& r) {
  const auto cut =
      std::find_if(r.phase.marks.begin(), r.phase.marks.end(), [](const Mark& mark) { return mark.kind == "fault"; });
  const double at_s = cut != r.phase.marks.end() ? cut->at_s : 0;
  return {name, StretchOf(r.goodput, at_s - 1, at_s + 3, at_s), StretchOf(r.phase.marks, at_s - 1, at_s + 3, at_s)};
}

std::vector<Comparison> Comparisons(const Collected& all) {
  const ContentionResult &plain = all.ecmp.front(), &steered = all.steered.front();
  return {{absl::StrFormat("Goodput of each queue pair, two jobs that collide (seed %d)", plain.seed),
           {{"kernel ECMP", plain.goodput, plain.phase.marks}, {"cwfabric", steered.goodput, steered.phase.marks}}},
          {"Goodput of each queue pair around the first silent death of a spine (at 0 s)",
           {AroundTheFirstCut("kernel ECMP", all.ecmp_cut), AroundTheFirstCut("cwfabric", all.steered_cut)}}};
}

bench::Report Figures(const Collected& all) {
  bench::Report report("demo");
  auto contention = [&](const char* system, const std::vector<ContentionResult>& results) {
    report.Add("contention", system, "goodput_min", "Mbit/s",
               Values(results, [](const ContentionResult& r) { return r.goodput_min_mbps; }));
    report.Add("contention", system, "completion", "s",
               Values(results, [](const ContentionResult& r) { return r.completion_s; }));
    report.Add("contention", system, "owd_p99", "us",
               Values(results, [](const ContentionResult& r) { return r.owd_p99_us; }));
  };
  contention("ecmp", all.ecmp);
  contention("cwfabric", all.steered);
  contention("best", {all.best});
  for (const auto& [system, result] :
       {std::pair<const char*, const FailoverResult&>("ecmp", all.ecmp_cut), {"cwfabric", all.steered_cut}}) {
    report.Add("silent_forward", system, "recovery", "ms", result.AllRecoveries());
    report.Add("silent_forward", system, "not_recovered", "count", {static_cast<double>(result.NotRecovered())});
    report.Add("silent_forward", system, "stall", "ms", result.flow_stall_ms);
    report.Add("silent_forward", system, "flows_lost", "count", {static_cast<double>(result.flows_lost)});
    report.Add("silent_forward", system, "wrong_verdicts", "count", {static_cast<double>(result.wrong_verdicts)});
  }
  return report;
}

}  // namespace

absl::StatusOr<Report> RunDemo(const DemoSpec& spec) {
  std::error_code error;
  std::filesystem::create_directories(spec.out, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("cannot make ", spec.out, ": ", error.message()));
  std::fprintf(stderr, "A lab fabric on this machine: 2 leaves, 4 spines, kernel ECMP, an agent per host.\n");
  Collected all;
  if (absl::Status status = RunContentionPart(spec, all); !status.ok()) return status;
  if (absl::Status status = RunFailoverPart(spec, all); !status.ok()) return status;

  Report report{.title = "cwfabric demo",
                .headline = Headline(all),
                .notes = {"Eight queue pairs of two jobs between four pairs of hosts, over four spines of 200 Mbit/s. "
                          "RoCEv2 traffic comes from the lab's emulator; "
                          "forwarding and ECMP are the kernel's. There is no PFC.",
                          "Then 8 paced queue pairs (a packet per 0.5 ms each) and half-full links of 200 Mbit/s, "
                          "while a spine silently drops everything in the data's direction."},
                .comparisons = Comparisons(all),
                .tables = {ContentionTable(all), SeedTable(all), FailoverTable(all)},
                .phases = {}};
  for (size_t i = 0; i < all.ecmp.size(); ++i) {
    report.phases.push_back(all.ecmp[i].phase);
    report.phases.push_back(all.steered[i].phase);
  }
  report.phases.push_back(all.best.phase);
  report.phases.push_back(all.ecmp_cut.phase);
  report.phases.push_back(all.steered_cut.phase);
  absl::Status status = WriteFile(spec.out + "/report.html", ToHtml(report));
  status.Update(Figures(all).Write(spec.out + "/result.json"));
  if (!status.ok()) return status;
  return report;
}

}  // namespace cw::lab
