// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_failover.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/failover_measure.h"
#include "userspace/lab/pause_gate.h"
#include "userspace/lab/stall_witness.h"

namespace cw::lab {
namespace {

struct Cut {
  LinkDirection link;
  CutTime time;
};

JobSpec MeasuredJob(const FailoverSpec& spec, int receiver) {
  JobSpec job;
  job.name = "measured";
  job.pairs = {{0, receiver}};
  job.qps_per_pair = spec.flows;
  job.message_bytes = 64 << 10;
  job.duration = absl::Hours(1);
  job.packet_interval = spec.packet_interval;
  job.path_mtu = 512;
  job.ack_every = 4;
  job.timeout = 14;  // 67 ms
  job.retry_cnt = 7;
  job.rate.reacts = false;
  if (!spec.tails) return job;
  job.message_bytes = 2048;
  job.outstanding = 1;
  job.timeout = 20;  // 4.3 s
  return job;
}

JobSpec BackgroundJob(const FailoverSpec& spec, int receiver, int flows) {
  JobSpec job;
  job.name = "background";
  job.pairs = {{0, receiver}};
  job.qps_per_pair = flows;
  job.message_bytes = 1 << 20;
  job.duration = absl::Hours(1);
  const double line_bps = spec.testbed.fabric.link_mbps * 1e6;
  job.rate = RateConfig::ForLine(line_bps);
  // ECN would let the flows fill the links; the ceiling per flow sets the share that was asked for.
  job.rate.line_bps = spec.background_share * line_bps * spec.testbed.fabric.spines / flows;
  return job;
}

// What is queued at a cut link is lost with it, so data that arrives later had passed it already. Where
// acknowledgements are cut, data goes on until the windows are full.
int64_t OutageBeginsNs(CutKind kind) { return kind == CutKind::kReverse ? 10'000'000 : 1'000'000; }

struct Bench {
  const FailoverSpec& spec;
  Testbed& testbed;
  Emulator& emulator;
  const FrrRouting* routing;
  int measured_job;
  std::mt19937_64 random;
  std::vector<Cut> cuts;

  // A spine that carries measured flows now, with those flows.
  std::pair<int, std::vector<int>> ChooseSpine() {
    const Snapshot snapshot = emulator.TakeSnapshot();
    const int64_t recent_ns = MonotonicNs() - 20'000'000;
    std::vector<std::vector<int>> on_spine(static_cast<size_t>(testbed.fabric().spec().spines));
    for (const FlowReport& flow : snapshot.flows) {
      if (flow.job != measured_job || flow.dead) continue;
      const int spine = testbed.SpineOf(flow, recent_ns, spec.tails && spec.kind == CutKind::kReverse);
      if (spine >= 0) on_spine[static_cast<size_t>(spine)].push_back(flow.id);
    }
    std::vector<int> used;
    for (size_t s = 0; s < on_spine.size(); ++s) {
      if (!on_spine[s].empty()) used.push_back(static_cast<int>(s));
    }
    if (used.empty()) return {-1, {}};
    const int spine = used[random() % used.size()];
    return {spine, on_spine[static_cast<size_t>(spine)]};
  }

  // The longest stall of each of the flows. Those that go on are waited for.
  std::vector<Stall> Stalls(const std::vector<int>& flows, const CutTime& time) {
    constexpr int64_t kLongestNs = 10'000'000'000;
    for (;; absl::SleepFor(absl::Milliseconds(20))) {
      std::vector<Stall> all;
      const Snapshot snapshot = emulator.TakeSnapshot();
      for (const FlowReport& flow : snapshot.flows) {
        if (std::find(flows.begin(), flows.end(), flow.id) == flows.end()) continue;
        all.push_back(LongestStall(flow, snapshot.taken_ns, time));
      }
      const bool waiting = std::any_of(all.begin(), all.end(), [](const Stall& s) { return s.end_ns == INT64_MAX; });
      if (!waiting || snapshot.taken_ns - time.repaired_ns > kLongestNs) return all;
    }
  }

  absl::Status CountRecoveries(const std::vector<int>& flows, const CutTime& time, CutResult& result) {
    const std::vector<Stall> stalls = Stalls(flows, time);
    for (const Stall& stall : stalls) result.stall_ms = std::max(result.stall_ms, stall.ms);
    const absl::StatusOr<std::vector<FlowCounters>> counted = testbed.fabric().Flows();
    if (!counted.ok()) return counted.status();
    const Snapshot snapshot = emulator.TakeSnapshot();
    const auto count = [&](double ms) {
      if (ms < 0) {
        ++result.not_recovered;
      } else {
        result.recovery_ms.push_back(ms);
      }
    };
    if (spec.kind == CutKind::kReboot) {
      for (const Stall& stall : stalls) count(!stall.dead && stall.end_ns < time.repaired_ns ? stall.ms : -1);
      return absl::OkStatus();
    }
    const LinkDirection link = BrokenLinks(spec.kind, result.spine, testbed.fabric().spec().leaves).front();
    for (const FlowReport& flow : snapshot.flows) {
      if (std::find(flows.begin(), flows.end(), flow.id) == flows.end()) continue;
      count(IsShare(spec.kind)
                ? LeftMs(*counted, testbed.fabric().HostAddr(flow.source), flow.destination_qpn, link, time.cut_ns,
                         time.repaired_ns)
                : RecoveryMs(emulator, flow.id, time.cut_ns, time.repaired_ns, OutageBeginsNs(spec.kind)));
    }
    return absl::OkStatus();
  }

  // Waits until the cut has lasted for `hold`, and looks on the way who is still there.
  void Hold(int64_t from_ns, const std::vector<int>& flows, CutResult& result) {
    const auto until = [&](absl::Duration length) {
      absl::SleepFor(length - absl::Nanoseconds(MonotonicNs() - from_ns));
    };
    until(std::min(spec.hold, kStillAfter));
    result.still_on_path = StillOn(testbed.fabric(), emulator.TakeSnapshot(), flows, result.spine,
                                   spec.kind == CutKind::kReverse, MonotonicNs());
    until(spec.hold);
  }

  // How long the port has carried nothing of a queue pair.
  double QuietMs(const LinkDirection& link) const {
    const absl::StatusOr<std::vector<FlowCounters>> counted = testbed.fabric().Flows();
    if (!counted.ok()) return 0;
    const int64_t now_ns = MonotonicNs();
    int64_t last_ns = 0;
    for (const FlowCounters& c : *counted) {
      if (c.link == link && !c.probe) last_ns = std::max(last_ns, c.last_ns);
    }
    return static_cast<double>(now_ns - last_ns) / 1e6;
  }

  // Holds the class of the data back, once or again and again; returns when it passes again.
  absl::Status PauseFor(PauseGate& gate, const LinkDirection& link, CutTime& time, CutResult& result) {
    std::uniform_real_distribution<double> ms(absl::ToDoubleMilliseconds(spec.pause_min),
                                              absl::ToDoubleMilliseconds(spec.pause_max));
    const bool storm = spec.kind == CutKind::kStorm;
    const absl::Time until = absl::Now() + spec.hold;
    do {
      const absl::StatusOr<int64_t> begin = gate.Pause();
      if (!begin.ok()) return begin.status();
      if (time.cut_ns == 0) time.cut_ns = *begin;
      absl::SleepFor(storm ? absl::Milliseconds(ms(random)) : spec.hold);
      const double quiet_ms = QuietMs(link);
      const absl::StatusOr<int64_t> end = gate.Resume();
      if (!end.ok()) return end.status();
      time.repaired_ns = *end;
      const double length_ms = static_cast<double>(*end - *begin) / 1e6;
      result.paused_ms += length_ms;
      result.held_ms += std::min(quiet_ms, length_ms);
      if (storm) absl::SleepFor(absl::Milliseconds(ms(random)));
    } while (storm && absl::Now() < until);
    return absl::OkStatus();
  }

  // Waits for flows to run: on a busy machine routing protocols may take longer than their first packets last.
  std::pair<int, std::vector<int>> AwaitSpine() {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    auto chosen = ChooseSpine();
    for (; chosen.first < 0 && absl::Now() < until; chosen = ChooseSpine()) absl::SleepFor(absl::Milliseconds(100));
    return chosen;
  }

  // Putting queues on a port, and taking them away, drops what comes meanwhile: verdicts on that are right, and flows
  // that left for it are not what the pause is about.
  absl::StatusOr<std::unique_ptr<PauseGate>> OpenGate(int spine, std::vector<int>& flows) {
    const LinkDirection link = BrokenLinks(spec.kind, spine, testbed.fabric().spec().leaves).front();
    const int64_t began_ns = MonotonicNs();
    absl::StatusOr<std::unique_ptr<PauseGate>> gate = PauseGate::Open(testbed.fabric(), link);
    if (!gate.ok()) return gate.status();
    cuts.push_back({link, {began_ns, MonotonicNs()}});
    absl::SleepFor(absl::Milliseconds(300));
    const Snapshot snapshot = emulator.TakeSnapshot();
    std::erase_if(flows, [&](int id) {
      const auto flow =
          std::find_if(snapshot.flows.begin(), snapshot.flows.end(), [&](const FlowReport& f) { return f.id == id; });
      return flow == snapshot.flows.end() || testbed.SpineOf(*flow, MonotonicNs() - 20'000'000) != spine;
    });
    return gate;
  }

  void CloseGate(int spine, std::unique_ptr<PauseGate> gate) {
    const LinkDirection link = BrokenLinks(spec.kind, spine, testbed.fabric().spec().leaves).front();
    const int64_t began_ns = MonotonicNs();
    gate.reset();
    cuts.push_back({link, {began_ns, MonotonicNs()}});
  }

  absl::StatusOr<CutResult> PauseOnce() {
    for (int attempt = 0; attempt < 5; ++attempt) {
      auto [spine, flows] = AwaitSpine();
      if (spine < 0) break;
      absl::StatusOr<std::unique_ptr<PauseGate>> gate = OpenGate(spine, flows);
      if (!gate.ok()) return gate.status();
      absl::StatusOr<CutResult> result = CutResult();
      if (!flows.empty()) result = PauseThrough(**gate, spine, flows);
      CloseGate(spine, *std::move(gate));
      if (!flows.empty()) return result;
    }
    return absl::InternalError("no measured flow crosses any spine");
  }

  absl::StatusOr<CutResult> PauseThrough(PauseGate& gate, int spine, const std::vector<int>& flows) {
    CutResult result{.spine = spine, .affected = static_cast<int>(flows.size())};
    const LinkDirection link = BrokenLinks(spec.kind, spine, testbed.fabric().spec().leaves).front();
    CutTime time;
    if (absl::Status status = PauseFor(gate, link, time, result); !status.ok()) return status;
    result.at_s = static_cast<double>(time.cut_ns - testbed.origin_ns()) / 1e9;
    absl::SleepFor(absl::Milliseconds(500));  // what is held is sent, and the path is taken back
    // What is held is delivered after the pause: that is a recovery, too.
    time.repaired_ns = MonotonicNs();
    if (absl::Status status = CountRecoveries(flows, time, result); !status.ok()) return status;
    return result;
  }

  absl::StatusOr<CutResult> CutOnce() {
    if (IsPause(spec.kind)) return PauseOnce();
    auto [spine, flows] = AwaitSpine();
    if (spine < 0) return absl::InternalError("no measured flow crosses any spine");
    CutResult result{.spine = spine, .affected = static_cast<int>(flows.size())};
    Fabric& fabric = testbed.fabric();
    const absl::StatusOr<int64_t> began_ns = Break(fabric, spec.kind, spine, spec.drop_share, [&] {
      return routing != nullptr ? routing->DropStaticRoutes() : absl::OkStatus();
    });
    if (!began_ns.ok()) return began_ns.status();
    result.at_s = static_cast<double>(*began_ns - testbed.origin_ns()) / 1e9;
    Hold(spec.kind == CutKind::kReboot ? MonotonicNs() : *began_ns, flows, result);
    const CutTime time{*began_ns, MonotonicNs()};
    if (absl::Status status = Repair(fabric, spec.kind, spine); !status.ok()) return status;
    for (const LinkDirection& link : BrokenLinks(spec.kind, spine, fabric.spec().leaves)) cuts.push_back({link, time});
    if (absl::Status status = CountRecoveries(flows, time, result); !status.ok()) return status;
    return result;
  }
};

// A verdict is right when the path's spine was cut, in the direction in which that host sends, then or within the 100
// ms before (a verdict on what was lost just before the repair). Hosts of leaf 0 send down to leaf 1, and the reverse.
bool Explained(const Fabric& fabric, const std::vector<Cut>& cuts, const Testbed::PathDeath& death) {
  const absl::StatusOr<int> spine = fabric.PathOf(death.host, death.peer, death.udp_port);
  if (!spine.ok()) return false;
  const int towards_leaf = fabric.HostLeaf(death.peer);
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
    return cut.link.spine == *spine && cut.link.leaf == towards_leaf && death.at_ns >= cut.time.cut_ns &&
           death.at_ns <= cut.time.repaired_ns + 100'000'000;
  });
}

int WrongVerdicts(Testbed& testbed, const std::vector<Cut>& cuts, std::vector<Mark>& marks) {
  int wrong = 0;
  for (const Testbed::PathDeath& death : testbed.PathDeaths(testbed.origin_ns())) {
    const bool right = Explained(testbed.fabric(), cuts, death);
    wrong += right ? 0 : 1;
    marks.push_back({static_cast<double>(death.at_ns - testbed.origin_ns()) / 1e9, "dead",
                     absl::StrFormat("%sh%d: %s", right ? "" : "WRONG: ", death.host, death.text)});
  }
  return wrong;
}

void Summarise(const FailoverSpec& spec, Testbed& testbed, const Snapshot& snapshot, int measured_job,
               FailoverResult& result) {
  for (const FlowReport& flow : snapshot.flows) {
    if (flow.job == measured_job) {
      ++result.flows;
      result.flow_stall_ms.push_back(static_cast<double>(flow.send.longest_stall.Length()) / 1e6);
    }
    if (flow.dead) ++result.flows_lost;
  }
  result.icrc_errors = snapshot.Total().icrc_errors;
  result.data_icrc_checked = snapshot.Total().received;
  double carried = 0;
  for (const LinkCounters& link : testbed.fabric().Links()) {
    if (link.link.tier == LinkDirection::Tier::kSpine && link.link.toward == LinkDirection::Toward::kUp &&
        link.link.leaf == 0) {
      carried += static_cast<double>(link.carried_bytes) * 8;
    }
  }
  const double seconds = static_cast<double>(MonotonicNs() - testbed.origin_ns()) / 1e9;
  result.load_share = carried / seconds / (spec.testbed.fabric.link_mbps * 1e6 * spec.testbed.fabric.spines);
}

}  // namespace

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[rank == 0 ? 0 : rank - 1];
}

std::vector<double> FailoverResult::AllRecoveries(bool undisturbed) const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) {
    if (undisturbed && cut.Disturbed()) continue;
    all.insert(all.end(), cut.recovery_ms.begin(), cut.recovery_ms.end());
  }
  return all;
}

std::vector<double> FailoverResult::CutStalls(bool undisturbed) const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) {
    if (!undisturbed || !cut.Disturbed()) all.push_back(cut.stall_ms);
  }
  return all;
}

int FailoverResult::Disturbed() const {
  return static_cast<int>(
      std::count_if(cuts.begin(), cuts.end(), [](const CutResult& cut) { return cut.Disturbed(); }));
}

int FailoverResult::NotRecovered() const {
  int sum = 0;
  for (const CutResult& cut : cuts) sum += cut.not_recovered;
  return sum;
}

int FailoverResult::StillOnPath() const {
  int sum = 0;
  for (const CutResult& cut : cuts) sum += cut.still_on_path;
  return sum;
}

absl::StatusOr<FailoverResult> RunFailover(const FailoverSpec& spec) {
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec.testbed);
  if (!testbed.ok()) return testbed.status();
  std::unique_ptr<FrrRouting> routing;
  if (spec.frr) {
    absl::StatusOr<std::unique_ptr<FrrRouting>> started = FrrRouting::Start((*testbed)->fabric(), *spec.frr);
    if (!started.ok()) return started.status();
    routing = *std::move(started);
  }
  absl::StatusOr<std::unique_ptr<Emulator>> emulator = (*testbed)->NewEmulator(spec.seed);
  if (!emulator.ok()) return emulator.status();
  const int receiver = spec.testbed.fabric.hosts_per_leaf;
  absl::StatusOr<int> measured = (*emulator)->AddJob(MeasuredJob(spec, receiver));
  if (!measured.ok()) return measured.status();
  if (spec.background_share > 0) {
    absl::StatusOr<int> job = (*emulator)->AddJob(BackgroundJob(spec, receiver, 4 * spec.testbed.fabric.spines));
    if (!job.ok()) return job.status();
  }
  if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
  LoadSampler load((*testbed)->fabric(), absl::Milliseconds(20));
  std::unique_ptr<DelaySampler> delay;
  if (spec.testbed.agents) delay = std::make_unique<DelaySampler>(**testbed, 0, absl::Milliseconds(500));
  absl::SleepFor(absl::Seconds(2));  // flows are up, and spread by the agents where there are agents

  absl::StatusOr<std::unique_ptr<StallWitness>> witness = StallWitness::Start();
  if (!witness.ok()) return witness.status();
  FailoverResult result;
  Bench bench{spec, **testbed, **emulator, routing.get(), *measured, std::mt19937_64(spec.seed), {}};
  for (int i = 0; i < spec.cuts; ++i) {
    absl::StatusOr<CutResult> cut = bench.CutOnce();
    if (!cut.ok()) return cut.status();
    const auto cut_ns = (*testbed)->origin_ns() + static_cast<int64_t>(cut->at_s * 1e9);
    cut->machine_stall_ms =
        LongestStallMs((*witness)->Stalls(), cut_ns, cut_ns + absl::ToInt64Nanoseconds(kRecoveryWindow));
    result.phase.marks.push_back(
        {cut->at_s, "fault",
         absl::StrFormat("spine%d fails, %d flows on it, the last recovered after %.1f ms, longest stall %.1f ms; the "
                         "machine stood still for %.1f ms",
                         cut->spine, cut->affected, Quantile(cut->recovery_ms, 1), cut->stall_ms,
                         cut->machine_stall_ms)});
    result.cuts.push_back(*std::move(cut));
    absl::SleepFor(spec.settle);
    if (!routing) continue;
    if (absl::Status status = routing->DropStaticRoutes(); !status.ok()) return status;
    if (absl::Status status = routing->WaitComplete(absl::Seconds(30)); !status.ok()) return status;
  }
  const Snapshot snapshot = (*emulator)->TakeSnapshot();
  load.Stop();
  if (delay) delay->Stop();
  (*emulator)->Stop();
  Summarise(spec, **testbed, snapshot, *measured, result);
  result.resends_asked = (*testbed)->CounterSum("tail_naks");
  result.moves = (*testbed)->CounterSum("moves_dead");
  for (const Mark& mark : (*testbed)->Events((*testbed)->origin_ns(), "path")) {
    if (mark.text.find(" paused, not dead") == std::string::npos) continue;
    ++result.paused_verdicts;
    result.phase.marks.push_back(mark);
  }
  result.wrong_verdicts = WrongVerdicts(**testbed, bench.cuts, result.phase.marks);
  result.phase.charts.push_back(load.LinkLoad((*testbed)->origin_ns()));
  if (delay) result.phase.charts.push_back(delay->PathDelay((*testbed)->origin_ns()));
  for (Mark& mark : (*testbed)->Events((*testbed)->origin_ns(), "move")) result.phase.marks.push_back(std::move(mark));
  std::sort(result.phase.marks.begin(), result.phase.marks.end(),
            [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return result;
}

}  // namespace cw::lab
