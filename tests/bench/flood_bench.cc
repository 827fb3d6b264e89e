// SPDX-License-Identifier: Apache-2.0
// What a flood of probes that nobody may believe costs data, beside the same flood into a program that only drops it;
// and that it changes nothing. Turns of both in a row, the first of them changing, and the median of their differences,
// because this machine's speed changes within seconds. Each kind of flood twice: half as many frames a second as the
// machine can send beside data (`_half`: the same number to both), and as many as it can (`_full`: who takes longer for
// a frame is sent fewer).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/bench/flood_rig.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/bench_result.h"

namespace {

using cw::bench::BadProbe;
using cw::bench::Books;
using cw::bench::FloodRig;
using cw::bench::Report;
using cw::bench::Target;
using cw::bench::Turn;

struct Turns {
  std::map<Target, std::vector<Turn>> by_target;

  std::vector<double> Of(Target target, double (*figure)(const Turn&)) const {
    std::vector<double> all;
    for (const Turn& turn : by_target.at(target)) all.push_back(figure(turn));
    return all;
  }
  // Percent of the throughput that the product costs more than the other program, turn by turn.
  std::vector<double> CostsMore() const {
    std::vector<double> more;
    for (size_t i = 0; i < by_target.at(Target::kDrop).size(); ++i)
      more.push_back(by_target.at(Target::kDrop)[i].KeptPercent() - by_target.at(Target::kProduct)[i].KeptPercent());
    return more;
  }
};

absl::Status RunTurns(FloodRig& rig, const std::string& frame, double pps, int count, Turns& turns) {
  for (int i = 0; i < count; ++i) {
    for (const Target target : {cw::bench::kTargets[i % 2], cw::bench::kTargets[1 - i % 2]}) {
      const absl::StatusOr<Turn> turn = rig.Run(target, frame, pps);
      if (!turn.ok()) return turn.status();
      turns.by_target[target].push_back(*turn);
    }
  }
  return absl::OkStatus();
}

void AddRows(Report& report, const std::string& name, const Turns& turns) {
  for (const Target target : cw::bench::kTargets) {
    const char* system = target == Target::kProduct ? "cwfabric" : "drop";
    const auto of = [&](double (*figure)(const Turn&)) { return turns.Of(target, figure); };
    report.Add(name, system, "data_quiet", "Mbit/s", of([](const Turn& t) { return t.quiet_mbps; }));
    report.Add(name, system, "data", "Mbit/s", of([](const Turn& t) { return t.flooded_mbps; }));
    report.Add(name, system, "kept", "percent", of([](const Turn& t) { return t.KeptPercent(); }));
    report.Add(name, system, "flood", "1000/s", of([](const Turn& t) { return t.flood_pps / 1e3; }));
    report.Add(name, "machine", target == Target::kProduct ? "idle" : "idle_drop", "percent",
               of([](const Turn& t) { return t.idle_percent; }));
    double died = 0;
    for (const Turn& turn : turns.by_target.at(target)) died += turn.died;
    report.Add(name, system, "qps_died", "count", {died});
  }
  report.Add(name, "cwfabric", "costs_more", "percent", turns.CostsMore());
  std::fprintf(
      stderr,
      "  %s: data keeps %.1f %% with the product, %.1f %% with a program that drops; %.0f and %.0f thousand/s\n",
      name.c_str(), cw::bench::Quantile(turns.Of(Target::kProduct, [](const Turn& t) { return t.KeptPercent(); }), 0.5),
      cw::bench::Quantile(turns.Of(Target::kDrop, [](const Turn& t) { return t.KeptPercent(); }), 0.5),
      cw::bench::Quantile(turns.Of(Target::kProduct, [](const Turn& t) { return t.flood_pps / 1e3; }), 0.5),
      cw::bench::Quantile(turns.Of(Target::kDrop, [](const Turn& t) { return t.flood_pps / 1e3; }), 0.5));
}

uint64_t Grown(const cw::bench::PinnedState& before, const cw::bench::PinnedState& after, const std::string& counter) {
  return after.counters.at(counter) - before.counters.at(counter);
}

// What may not have changed, and what the frames were counted as.
void AddState(Report& report, BadProbe kind, const Books& before, const Books& after) {
  const std::string name = NameOf(kind);
  const auto add = [&](const char* metric, const char* unit, double value) {
    report.Add(name, "cwfabric", metric, unit, {value});
  };
  const auto sent = static_cast<double>(after.flooded - before.flooded);
  add("frames", "count", sent);
  uint64_t counted = 0;
  for (const std::string& counter : CountersOf(kind)) counted += Grown(before.victim, after.victim, counter);
  add("counted", "percent", 100 * static_cast<double>(counted) / sent);
  const uint64_t answered = Grown(before.victim, after.victim, "probe_requests");
  const uint64_t asked = Grown(before.peer, after.peer, "probe_sent");
  add("answers_more", "count", static_cast<double>(answered - std::min(answered, asked)));
  add("paths_died", "count",
      static_cast<double>(Grown(before.victim, after.victim, "slots_died") +
                          Grown(before.peer, after.peer, "slots_died")));
  add("peer_restarts", "count", static_cast<double>(Grown(before.victim, after.victim, "peer_restarts")));
  add("messages_lost", "count", static_cast<double>(Grown(before.victim, after.victim, "message_ring_full")));
  const cw::bench::Damage damage = Compare(before.victim, after.victim);
  add("steering_changed", "count", damage.steering_changed);
  int changed = 0;
  for (const auto& [map, fill] : after.fill) {
    const auto was = before.fill.find(map);
    if (!fill.ring && (was == before.fill.end() || was->second.entries != fill.entries)) ++changed;
  }
  add("maps_changed", "count", changed);
  for (const std::string& each : damage.what) std::fprintf(stderr, "  %s: %s\n", name.c_str(), each.c_str());
}

absl::Status Measure(const cw::bench::Wanted& wanted, int count, Report& report) {
  absl::StatusOr<std::unique_ptr<FloodRig>> rig = FloodRig::Up();
  if (!rig.ok()) return rig.status();
  // So that each target has seen the queue pairs; and how much the machine can send beside them.
  const std::string calibration = MakeBad(BadProbe::kWrongMac, (*rig)->genuine());
  double most_pps = 0;
  for (const Target target : cw::bench::kTargets) {
    const absl::StatusOr<Turn> turn = (*rig)->Run(target, calibration, 0);
    if (!turn.ok()) return turn.status();
    most_pps = turn->flood_pps;  // into the program that drops
  }
  for (const BadProbe kind : cw::bench::kBadProbes) {
    if (!wanted.Has(NameOf(kind))) continue;
    const std::string frame = MakeBad(kind, (*rig)->genuine());
    const absl::StatusOr<Books> before = (*rig)->Read();
    if (!before.ok()) return before.status();
    const uint64_t dropped = (*rig)->DroppedByPeerProgram(), to_drop = (*rig)->FloodedPeerProgram();
    for (const auto& [suffix, pps] : {std::pair{"_half", most_pps / 2}, std::pair{"_full", 0.0}}) {
      Turns turns;
      if (absl::Status status = RunTurns(**rig, frame, pps, count, turns); !status.ok()) return status;
      AddRows(report, NameOf(kind) + suffix, turns);
    }
    const absl::StatusOr<Books> after = (*rig)->Read();
    if (!after.ok()) return after.status();
    AddState(report, kind, *before, *after);
    report.Add(NameOf(kind), "drop", "counted", "percent",
               {100 * static_cast<double>((*rig)->DroppedByPeerProgram() - dropped) /
                static_cast<double>((*rig)->FloodedPeerProgram() - to_drop)});
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  int turns = std::getenv("BENCH_FULL") != nullptr ? 15 : 5;
  if (const char* given = std::getenv("BENCH_TURNS");
      given != nullptr && (!absl::SimpleAtoi(given, &turns) || turns < 1)) {
    std::fprintf(stderr, "BENCH_TURNS: '%s' is no number of turns above 0\n", given);
    return 2;
  }
  std::vector<std::string> names;
  for (const BadProbe kind : cw::bench::kBadProbes) names.push_back(NameOf(kind));
  const auto wanted = cw::bench::Wanted::Parse(std::getenv("BENCH_CASE"), names);
  if (!wanted.ok()) {
    std::fprintf(stderr, "%s\n", std::string(wanted.status().message()).c_str());
    return 2;
  }
  Report report("flood");
  absl::Status status = Measure(*wanted, turns, report);
  if (status.ok()) status = report.Write(cw::bench::OutPath(argc, argv, "build/bench/flood.json"));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
