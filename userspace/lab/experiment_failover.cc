// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_failover.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/pause_gate.h"

namespace cw::lab {
namespace {

struct Cut {
  LinkDirection link;
  int64_t at_ns = 0;
  int64_t repaired_ns = 0;
};

std::vector<LinkDirection> LinksOf(CutKind kind, int spine) {
  // Host 0 is on leaf 0, the receiver on leaf 1; data that leaf 0 sent to the spine dies on its way down to leaf 1.
  const LinkDirection data = LinkDirection::SpineToLeaf(spine, 1);
  const LinkDirection acknowledgements = LinkDirection::SpineToLeaf(spine, 0);
  if (kind == CutKind::kReverse) return {acknowledgements};
  if (kind == CutKind::kBoth) return {data, acknowledgements};
  return {data};
}

absl::StatusOr<int64_t> Break(Fabric& fabric, const FailoverSpec& spec, const LinkDirection& link) {
  if (spec.kind == CutKind::kLinkDown) return fabric.SetLinkUp(link.leaf, link.spine, false);
  if (spec.kind == CutKind::kShare) return fabric.SetFault(link, Fault::Share(spec.drop_share));
  return fabric.SetFault(link, Fault::Drop(spec.kind == CutKind::kDataOnly ? Fault::Match::kRoceData : Fault::Match::kAll));
}

absl::StatusOr<int64_t> Repair(Fabric& fabric, CutKind kind, const LinkDirection& link) {
  if (kind == CutKind::kLinkDown) return fabric.SetLinkUp(link.leaf, link.spine, true);
  return fabric.ClearFault(link);
}

// A flow that was seen on the link within the last 50 ms is still there.
double LeftMs(const std::vector<FlowCounters>& counted, const std::string& source, uint32_t qpn, const LinkDirection& link, int64_t cut_ns, int64_t until_ns) {
  int64_t last_ns = cut_ns;
  for (const FlowCounters& c : counted) {
    if (c.link == link && !c.probe && c.source == source && c.dest_qpn == qpn)
      last_ns = std::max(last_ns, c.last_ns);
  }
  return last_ns > until_ns - 50'000'000 ? -1 : static_cast<double>(last_ns - cut_ns) / 1e6;
}

// Packets that had passed the cut still arrive after it, for as long as the queues hold them. The outage is the largest gap
// between arrivals that begins within that time; it ends with the recovery. −1: nothing arrived before `until_ns`.
double RecoveryMs(const Emulator& emulator, int flow, int64_t cut_ns, int64_t until_ns) {
  constexpr int64_t kDrainNs = 10'000'000;  // what the fabric's queues hold at most
  int64_t previous_ns = cut_ns;
  int64_t longest_ns = 0, end_ns = -1;
  while (previous_ns <= cut_ns + kDrainNs) {
    const ArrivalRing::After after = emulator.FirstDeliveryAfter(flow, previous_ns + 1);
    if (!after.any_ns.has_value() || *after.any_ns >= until_ns) return -1;
    if (*after.any_ns - previous_ns > longest_ns) {
      longest_ns = *after.any_ns - previous_ns;
      end_ns = *after.any_ns;
    }
    previous_ns = *after.any_ns;
  }
  return static_cast<double>(end_ns - cut_ns) / 1e6;
}

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

struct Bench {
  const FailoverSpec& spec;
  Testbed& testbed;
  Emulator& emulator;
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

  static void Count(double ms, std::vector<double>& into, CutResult& result) {
    if (ms < 0) {
      ++result.not_recovered;
    } else {
      into.push_back(ms);
    }
  }

  absl::Status CountLeft(const std::vector<int>& flows, const LinkDirection& link, int64_t cut_ns, int64_t until_ns, CutResult& result) {
    const absl::StatusOr<std::vector<FlowCounters>> counted = testbed.fabric().Flows();
    if (!counted.ok()) return counted.status();
    const Snapshot snapshot = emulator.TakeSnapshot();
    for (const FlowReport& flow : snapshot.flows) {
      if (std::find(flows.begin(), flows.end(), flow.id) != flows.end()) Count(LeftMs(*counted, testbed.fabric().HostAddr(flow.source), flow.destination_qpn, link, cut_ns, until_ns), result.left_ms, result);
    }
    return absl::OkStatus();
  }

  // The longest stall that began during the cut, or with the last progress before it. Those that go on are waited for.
  double StallMs(int64_t cut_ns, int64_t repaired_ns) {
    constexpr int64_t kEarlyNs = 5'000'000;
    constexpr int64_t kLongestNs = 10'000'000'000;
    int64_t longest_ns = 0;
    bool waiting = true;
    while (waiting) {
      const Snapshot snapshot = emulator.TakeSnapshot();
      waiting = false;
      longest_ns = 0;
      for (const FlowReport& flow : snapshot.flows) {
        if (flow.job != measured_job) continue;
        const int64_t since_ns = flow.waiting_since_ns;
        const bool stuck = since_ns >= cut_ns - kEarlyNs && since_ns < repaired_ns && !flow.dead;
        waiting |= stuck && snapshot.taken_ns - repaired_ns < kLongestNs;
        if (stuck) longest_ns = std::max(longest_ns, snapshot.taken_ns - since_ns);
        for (const Gap& stall : flow.send.stalls) {
          if (stall.begin_ns >= cut_ns - kEarlyNs && stall.begin_ns < repaired_ns) longest_ns = std::max(longest_ns, stall.Length());
        }
      }
      if (waiting) absl::SleepFor(absl::Milliseconds(20));
    }
    return static_cast<double>(longest_ns) / 1e6;
  }

  // Holds the class of the data back, once or again and again; returns when it passes again.
  absl::Status PauseFor(PauseGate& gate, int64_t& begin_ns, int64_t& end_ns) {
    std::uniform_real_distribution<double> ms(absl::ToDoubleMilliseconds(spec.pause_min), absl::ToDoubleMilliseconds(spec.pause_max));
    const bool storm = spec.kind == CutKind::kStorm;
    const absl::Time until = absl::Now() + spec.hold;
    do {
      const absl::StatusOr<int64_t> begin = gate.Pause();
      if (!begin.ok()) return begin.status();
      if (begin_ns == 0) begin_ns = *begin;
      absl::SleepFor(storm ? absl::Milliseconds(ms(random)) : spec.hold);
      const absl::StatusOr<int64_t> end = gate.Resume();
      if (!end.ok()) return end.status();
      end_ns = *end;
      if (storm) absl::SleepFor(absl::Milliseconds(ms(random)));
    } while (storm && absl::Now() < until);
    return absl::OkStatus();
  }

  absl::StatusOr<CutResult> PauseOnce() {
    auto [spine, flows] = ChooseSpine();
    if (spine < 0) return absl::InternalError("no measured flow crosses any spine");
    CutResult result{.spine = spine, .affected = static_cast<int>(flows.size())};
    absl::StatusOr<std::unique_ptr<PauseGate>> gate = PauseGate::Open(testbed.fabric(), LinksOf(spec.kind, spine).front());
    if (!gate.ok()) return gate.status();
    absl::SleepFor(absl::Milliseconds(100));
    int64_t begin_ns = 0, end_ns = 0;
    if (absl::Status status = PauseFor(**gate, begin_ns, end_ns); !status.ok()) return status;
    result.at_s = static_cast<double>(begin_ns - testbed.origin_ns()) / 1e9;
    absl::SleepFor(absl::Milliseconds(500));  // what is held is sent, and the path is taken back
    for (int flow : flows) Count(RecoveryMs(emulator, flow, begin_ns, MonotonicNs()), result.recovery_ms, result);
    return result;
  }

  absl::StatusOr<CutResult> CutOnce() {
    if (spec.kind == CutKind::kPause || spec.kind == CutKind::kStorm) return PauseOnce();
    auto [spine, flows] = ChooseSpine();
    if (spine < 0) return absl::InternalError("no measured flow crosses any spine");
    CutResult result{.spine = spine};
    int64_t cut_ns = 0;
    for (const LinkDirection& link : LinksOf(spec.kind, spine)) {
      absl::StatusOr<int64_t> at_ns = Break(testbed.fabric(), spec, link);
      if (!at_ns.ok()) return at_ns.status();
      if (cut_ns == 0) cut_ns = *at_ns;
      cuts.push_back({link, *at_ns, 0});
    }
    result.at_s = static_cast<double>(cut_ns - testbed.origin_ns()) / 1e9;
    absl::SleepFor(spec.hold);
    const int64_t repaired_ns = MonotonicNs();
    for (const LinkDirection& link : LinksOf(spec.kind, spine)) {
      if (absl::StatusOr<int64_t> at = Repair(testbed.fabric(), spec.kind, link); !at.ok()) return at.status();
    }
    for (Cut& cut : cuts) {
      if (cut.repaired_ns == 0) cut.repaired_ns = repaired_ns;
    }
    result.affected = static_cast<int>(flows.size());
    if (spec.tails) result.stall_ms = StallMs(cut_ns, repaired_ns);
    if (spec.kind == CutKind::kShare) {
      if (absl::Status status = CountLeft(flows, LinksOf(spec.kind, spine).front(), cut_ns, repaired_ns, result); !status.ok()) return status;
      return result;
    }
    for (int flow : flows) Count(RecoveryMs(emulator, flow, cut_ns, repaired_ns), result.recovery_ms, result);
    return result;
  }
};

// A verdict is right when the path's spine was cut, in the direction in which that host sends, then or within the 100 ms
// before (a verdict on what was lost just before the repair). Hosts of leaf 0 send down to leaf 1, and the reverse.
bool Explained(const Fabric& fabric, const std::vector<Cut>& cuts, const Testbed::PathDeath& death) {
  const absl::StatusOr<int> spine = fabric.PathOf(death.host, death.peer, death.udp_port);
  if (!spine.ok()) return false;
  const int towards_leaf = fabric.HostLeaf(death.peer);
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
    return cut.link.spine == *spine && cut.link.leaf == towards_leaf && death.at_ns >= cut.at_ns && death.at_ns <= cut.repaired_ns + 100'000'000;
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

void Summarise(const FailoverSpec& spec, Testbed& testbed, const Snapshot& snapshot, int measured_job, FailoverResult& result) {
  for (const FlowReport& flow : snapshot.flows) {
    if (flow.job == measured_job) {
      ++result.flows;
      result.stall_ms.push_back(static_cast<double>(flow.send.longest_stall.Length()) / 1e6);
    }
    if (flow.dead) ++result.flows_lost;
  }
  result.icrc_errors = snapshot.Total().icrc_errors;
  result.data_icrc_checked = snapshot.Total().received;
  double carried = 0;
  for (const LinkCounters& link : testbed.fabric().Links()) {
    if (link.link.tier == LinkDirection::Tier::kSpine && link.link.toward == LinkDirection::Toward::kUp && link.link.leaf == 0) {
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

std::vector<double> FailoverResult::AllRecoveries() const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) all.insert(all.end(), cut.recovery_ms.begin(), cut.recovery_ms.end());
  return all;
}

std::vector<double> FailoverResult::AllLeft() const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) all.insert(all.end(), cut.left_ms.begin(), cut.left_ms.end());
  return all;
}

std::vector<double> FailoverResult::CutStalls() const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) all.push_back(cut.stall_ms);
  return all;
}

int FailoverResult::NotRecovered() const {
  int sum = 0;
  for (const CutResult& cut : cuts) sum += cut.not_recovered;
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

  FailoverResult result;
  Bench bench{spec, **testbed, **emulator, *measured, std::mt19937_64(spec.seed), {}};
  for (int i = 0; i < spec.cuts; ++i) {
    absl::StatusOr<CutResult> cut = bench.CutOnce();
    if (!cut.ok()) return cut.status();
    result.phase.marks.push_back({cut->at_s, "fault", absl::StrFormat("spine%d fails, %d flows on it, the last recovered after %.1f ms, longest stall %.1f ms", cut->spine, cut->affected, Quantile(spec.kind == CutKind::kShare ? cut->left_ms : cut->recovery_ms, 1), cut->stall_ms)});
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
  std::sort(result.phase.marks.begin(), result.phase.marks.end(), [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return result;
}

}  // namespace cw::lab
