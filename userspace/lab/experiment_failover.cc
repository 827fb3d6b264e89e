// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_failover.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/failover_jobs.h"
#include "userspace/lab/failover_measure.h"
#include "userspace/lab/failover_verdicts.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/kernel_deaths.h"
#include "userspace/lab/pause_gate.h"
#include "userspace/lab/stall_witness.h"

namespace cw::lab {
namespace {

// What is queued at a cut link is lost with it, so data that arrives later had passed it already. Where
// acknowledgements are cut, data goes on until the windows are full.
int64_t OutageBeginsNs(CutKind kind) { return kind == CutKind::kReverse ? 10'000'000 : 1'000'000; }

constexpr int kSender = 0;
constexpr absl::Duration kBackWithin = absl::Seconds(60);

struct Bench {
  const FailoverSpec& spec;
  Testbed& testbed;
  Emulator& emulator;
  const FrrRouting* routing;
  int measured_job;
  std::mt19937_64 random;
  std::vector<Cut> cuts;
  std::vector<Cut> pauses;               // explain what kernels do: a paused path is left like a dead one
  std::vector<Testbed::PathDeath> told;  // until told_until_ns
  int64_t told_until_ns = 0;
  std::vector<FlowCounters> at_repair;  // later, flows that left are back
  KernelDeaths* kernels = nullptr;      // where there are agents
  uint64_t moves_without_fault = 0;     // blind ones
  bool nothing_to_cut = false;

  absl::Status NothingToCut(const char* why) {
    nothing_to_cut = true;
    return absl::InternalError(why);
  }

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
    for (const FlowReport& flow : snapshot.flows) {
      if (std::find(flows.begin(), flows.end(), flow.id) == flows.end()) continue;
      if (flow.dead) {  // silent on that link, and everywhere
        count(-1);
        continue;
      }
      count(IsShare(spec.kind)
                ? LeftMs(at_repair, testbed.fabric().HostAddr(flow.source), flow.destination_qpn,
                         BrokenLinks(spec.kind, result.spine, testbed.fabric().spec().leaves).front(), time.cut_ns,
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

  // Waits for flows to run: on a busy machine routing protocols may take longer than their first packets last. The dead
  // are not waited for.
  std::pair<int, std::vector<int>> AwaitSpine() {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    auto chosen = ChooseSpine();
    for (; chosen.first < 0 && absl::Now() < until && !LivingFlows().empty(); chosen = ChooseSpine())
      absl::SleepFor(absl::Milliseconds(100));
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
    return NothingToCut("no measured flow crosses any spine");
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
    pauses.push_back({link, time});
    if (absl::Status status = CountRecoveries(flows, time, result); !status.ok()) return status;
    return result;
  }

  // An agent that is killed takes what it told with it.
  void CollectTold() {
    const int64_t now_ns = MonotonicNs();
    for (Testbed::PathDeath& death : testbed.PathDeaths(told_until_ns)) {
      if (death.at_ns < now_ns) told.push_back(std::move(death));
    }
    told_until_ns = now_ns;
  }

  absl::Status AgentLeaves() {
    if (spec.agent_fault == AgentFault::kNone) return absl::OkStatus();
    CollectTold();
    const absl::StatusOr<KernelCounts> before = kernels->Counted();
    if (!before.ok()) return before.status();
    const absl::Status status =
        spec.agent_fault == AgentFault::kKilled ? KillAgent(testbed, kSender) : StopAgent(testbed, kSender);
    if (!status.ok()) return status;
    absl::SleepFor(spec.agent_away);
    const absl::StatusOr<KernelCounts> after = kernels->Counted();
    if (after.ok()) moves_without_fault += after->moves_blind - before->moves_blind;
    return after.status();
  }

  absl::Status AgentReturns() {
    if (spec.agent_fault == AgentFault::kNone) return absl::OkStatus();
    const absl::Status status =
        spec.agent_fault == AgentFault::kKilled ? testbed.StartAgent(kSender) : ContinueAgent(testbed, kSender);
    return status.ok() ? testbed.WaitPathsUp(kBackWithin) : status;
  }

  std::vector<int> LivingFlows() {
    std::vector<int> living;
    for (const FlowReport& flow : emulator.TakeSnapshot().flows) {
      if (flow.job == measured_job && !flow.dead) living.push_back(flow.id);
    }
    return living;
  }

  // Flows have a way again, and nobody speaks of a fault: what comes after the next one is its own.
  absl::Status HostIsBack(int host) {
    if (!spec.testbed.agents) return absl::OkStatus();
    if (spec.kind == CutKind::kPeerRestart) {
      if (absl::Status status = testbed.StartAgent(host); !status.ok()) return status;
    }
    if (absl::Status status = testbed.WaitPathsUp(kBackWithin); !status.ok()) return status;
    if (spec.kind != CutKind::kNicDown) return absl::OkStatus();
    const absl::Time until = absl::Now() + kBackWithin;
    for (;; absl::SleepFor(absl::Milliseconds(20))) {
      const auto status = testbed.agent(host).Status();
      if (!status.ok()) return status.status();
      if (status->nics(0).pairs_carried() == 0) return absl::OkStatus();
      if (absl::Now() > until) return absl::DeadlineExceededError("packets are carried though the NIC is back");
    }
  }

  // The sender's agent knows that the peer is silent: cwctl paths shows since when.
  bool ToldAsPeer(absl::Duration silent) {
    const auto reply = testbed.agent(kSender).Paths({});
    return reply.ok() && !reply->pairs().empty() &&
           std::all_of(reply->pairs().begin(), reply->pairs().end(), [&](const api::v1::Pair& pair) {
             return pair.last_reply_ago_s() >= absl::ToDoubleSeconds(silent) / 2;
           });
  }

  // No path is at fault, so `cuts` explains nothing.
  absl::StatusOr<CutResult> HostOnce() {
    const int host = spec.kind == CutKind::kNicDown ? kSender : spec.testbed.fabric.hosts_per_leaf;
    const std::vector<int> flows = LivingFlows();
    if (flows.empty()) return NothingToCut("no measured flow is alive");
    CutResult result{.spine = -1, .affected = static_cast<int>(flows.size())};
    if (spec.kind == CutKind::kPeerRestart && spec.testbed.agents) {
      CollectTold();
      if (absl::Status status = KillAgent(testbed, host); !status.ok()) return status;
    }
    CutTime time{.cut_ns = MonotonicNs()};
    result.at_s = static_cast<double>(time.cut_ns - testbed.origin_ns()) / 1e9;
    if (absl::Status status = CutPort(testbed.fabric(), host, true); !status.ok()) return status;
    absl::SleepFor(spec.hold);
    result.told_as_peer = IsPeer(spec.kind) && spec.testbed.agents && ToldAsPeer(spec.hold);
    time.repaired_ns = MonotonicNs();
    if (absl::Status status = CutPort(testbed.fabric(), host, false); !status.ok()) return status;
    if (absl::Status status = HostIsBack(host); !status.ok()) return status;
    if (absl::Status status = CountRecoveries(flows, time, result); !status.ok()) return status;
    return result;
  }

  absl::StatusOr<CutResult> CutOnce() {
    if (IsPause(spec.kind)) return PauseOnce();
    if (IsHost(spec.kind)) return HostOnce();
    if (absl::Status status = AgentLeaves(); !status.ok()) return status;
    absl::StatusOr<CutResult> result = CutSpine();
    if (absl::Status status = AgentReturns(); !status.ok()) return status;
    return result;
  }

  absl::StatusOr<CutResult> CutSpine() {
    auto [spine, flows] = AwaitSpine();
    if (spine < 0) return NothingToCut("no measured flow crosses any spine");
    CutResult result{.spine = spine, .affected = static_cast<int>(flows.size())};
    Fabric& fabric = testbed.fabric();
    const absl::StatusOr<int64_t> began_ns = Break(fabric, spec.kind, spine, spec.drop_share, [&] {
      return routing != nullptr ? routing->DropStaticRoutes() : absl::OkStatus();
    });
    if (!began_ns.ok()) return began_ns.status();
    result.at_s = static_cast<double>(*began_ns - testbed.origin_ns()) / 1e9;
    Hold(spec.kind == CutKind::kReboot ? MonotonicNs() : *began_ns, flows, result);
    absl::StatusOr<std::vector<FlowCounters>> counted = fabric.Flows();
    if (!counted.ok()) return counted.status();
    at_repair = *std::move(counted);
    const CutTime time{*began_ns, MonotonicNs()};
    if (absl::Status status = Repair(fabric, spec.kind, spine); !status.ok()) return status;
    for (const LinkDirection& link : BrokenLinks(spec.kind, spine, fabric.spec().leaves)) cuts.push_back({link, time});
    if (absl::Status status = CountRecoveries(flows, time, result); !status.ok()) return status;
    return result;
  }
};

void SummariseFailover(const FailoverSpec& spec, Testbed& testbed, const Snapshot& snapshot, int measured_job,
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

absl::Status Judge(Bench& bench, FailoverResult& result) {
  bench.CollectTold();
  result.wrong_verdicts = WrongTold(bench.testbed, bench.told, bench.cuts, result.phase.marks);
  if (bench.kernels == nullptr) return absl::OkStatus();
  std::vector<Cut> all = bench.cuts;
  all.insert(all.end(), bench.pauses.begin(), bench.pauses.end());
  const absl::StatusOr<KernelVerdicts> verdicts = JudgeKernels(bench.testbed, *bench.kernels, all, result.phase.marks);
  if (!verdicts.ok()) return verdicts.status();
  result.kernel_deaths = verdicts->died;
  result.deaths_elsewhere = verdicts->elsewhere;
  result.deaths_untraced = verdicts->untraced;
  result.moves_blind = verdicts->moves_blind;
  result.moves_without_fault = bench.moves_without_fault;
  return absl::OkStatus();
}

absl::Status MakeCuts(Bench& bench, FrrRouting* routing, const StallWitness& witness, FailoverResult& result) {
  for (int i = 0; i < bench.spec.cuts; ++i) {
    absl::StatusOr<CutResult> cut = bench.CutOnce();
    if (!cut.ok() && bench.nothing_to_cut) {
      const int living = static_cast<int>(bench.LivingFlows().size());
      result.ended_early = NothingLeft(i, bench.spec.flows, bench.spec.flows - living);
      // Routing that loses all queue pairs before anything fails is a result, too; otherwise something is wrong here.
      if (i == 0 && (routing == nullptr || living > 0)) return absl::InternalError(result.ended_early);
      break;
    }
    if (!cut.ok()) return cut.status();
    const auto cut_ns = bench.testbed.origin_ns() + static_cast<int64_t>(cut->at_s * 1e9);
    cut->machine_stall_ms =
        LongestStallMs(witness.Stalls(), cut_ns, cut_ns + absl::ToInt64Nanoseconds(kRecoveryWindow));
    result.phase.marks.push_back(
        {cut->at_s, "fault",
         absl::StrFormat("%s fails, %d flows on it, the last recovered after %.1f ms, longest stall %.1f ms; the "
                         "machine stood still for %.1f ms",
                         cut->spine < 0 ? "a host" : absl::StrCat("spine", cut->spine), cut->affected,
                         Quantile(cut->recovery_ms, 1), cut->stall_ms, cut->machine_stall_ms)});
    result.cuts.push_back(*std::move(cut));
    absl::SleepFor(bench.spec.settle);
    if (routing == nullptr) continue;
    if (absl::Status status = routing->DropStaticRoutes(); !status.ok()) return status;
    if (absl::Status status = routing->WaitComplete(absl::Seconds(30)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

std::string NothingLeft(int cuts, int flows, int lost) {
  const std::string when = cuts == 0 ? "before the first cut" : absl::StrFormat("after %d cuts", cuts);
  if (lost == flows) return absl::StrFormat("all %d flows lost %s: nothing is left to cut", flows, when);
  return absl::StrFormat("no flow crossed a spine for 10 s %s (%d of %d flows lost): nothing is left to cut", when,
                         lost, flows);
}

absl::StatusOr<FailoverResult> RunFailover(const FailoverSpec& spec) {
  if (spec.agent_fault != AgentFault::kNone && !spec.testbed.agents)
    return absl::InvalidArgumentError("no agents, so none can be killed or stopped");
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
  std::unique_ptr<KernelDeaths> kernels;
  if (spec.testbed.agents) {
    absl::StatusOr<std::unique_ptr<KernelDeaths>> started = KernelDeaths::Start((*testbed)->fabric());
    if (!started.ok()) return started.status();
    kernels = *std::move(started);
  }
  Bench bench{spec, **testbed, **emulator, routing.get(), *measured, std::mt19937_64(spec.seed), {}, {}, {}, 0};
  bench.told_until_ns = (*testbed)->origin_ns();
  bench.kernels = kernels.get();
  if (absl::Status status = MakeCuts(bench, routing.get(), **witness, result); !status.ok()) return status;
  const Snapshot snapshot = (*emulator)->TakeSnapshot();
  load.Stop();
  if (delay) delay->Stop();
  (*emulator)->Stop();
  SummariseFailover(spec, **testbed, snapshot, *measured, result);
  result.resends_asked = (*testbed)->CounterSum("tail_naks");
  result.moves = (*testbed)->CounterSum("moves_dead");
  for (const Mark& mark : (*testbed)->Events((*testbed)->origin_ns(), "path")) {
    if (mark.text.find(" paused, not dead") == std::string::npos) continue;
    ++result.paused_verdicts;
    result.phase.marks.push_back(mark);
  }
  if (absl::Status status = Judge(bench, result); !status.ok()) return status;
  result.goodput = Goodput(snapshot, *measured, (*testbed)->origin_ns(), absl::Milliseconds(10));
  result.phase.charts.push_back(load.LinkLoad((*testbed)->origin_ns()));
  if (delay) result.phase.charts.push_back(delay->PathDelay((*testbed)->origin_ns()));
  for (Mark& mark : (*testbed)->Events((*testbed)->origin_ns(), "move")) result.phase.marks.push_back(std::move(mark));
  std::sort(result.phase.marks.begin(), result.phase.marks.end(),
            [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return result;
}

}  // namespace cw::lab
