// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/control_cause_fabric.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cw::control::cause_sim {
namespace {

constexpr double kHopS = 5e-6;        // one wire
constexpr double kBaseS = 4 * kHopS;  // one way, empty
constexpr double kLookS = 0.04;
constexpr double kMarkFromPackets = 3;
constexpr double kFailoverS = 0.01;  // the kernel's
constexpr double kTimeoutS = 0.07;

CauseRules Undamped(CauseRules rules) {
  rules.agree_windows = 1;
  return rules;
}

double TrimmedMean(std::vector<double>& v) {
  std::sort(v.begin(), v.end());
  const size_t n = std::max<size_t>(1, v.size() - v.size() / 20);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += v[i];
  return sum / static_cast<double>(n);
}

}  // namespace

Fabric::Fabric(const Setup& setup, bool inject, uint64_t seed, const CauseRules& rules)
    : setup_(setup),
      inject_(inject),
      random_(seed),
      nic_free_(kHosts),
      host_free_(kHosts),
      causes_(rules),
      raw_(Undamped(rules)) {
  const size_t links = 2 * kLeaves * setup.spines + kHosts;
  links_.assign(links, MarkingLink(setup.line_bps, kPacketBits, kMarkFromPackets * kPacketBits / setup.line_bps));
  loss_.assign(links, 0);
  late_.assign(links, 0);
  series_.assign(kHosts, std::vector<Series>(setup.spines));
  round_.assign(kHosts, 0);
  for (const FlowSpec& spec : setup.flows) {
    if (spec.from_injection && !inject) continue;
    LiveFlow f{.spec = spec, .sender = DcqcnSender(setup.line_bps, setup.cnp_interval_s)};
    f.demand = spec.demand;
    f.burst = spec.burst;
    flows_.push_back(std::move(f));
    Wake(static_cast<int>(flows_.size()) - 1, spec.from_injection ? kInjectS : Uniform() * 1e-2);
  }
}

double Fabric::WaitOn(const std::vector<int>& path, double t) const {
  double wait = 0;
  for (const int l : path) wait += links_[l].WaitS(t);
  return wait;
}

bool Fabric::MarkedOn(const std::vector<int>& path, double t) {
  bool marked = false;
  for (const int l : path) marked = marked || Uniform() < links_[l].MarkChance(t);
  return marked;
}

bool Fabric::LostOn(const std::vector<int>& path) {
  for (const int l : path) {
    if (loss_[l] > 0 && Uniform() < loss_[l]) return true;
  }
  return false;
}

void Fabric::Inject(double t) {
  injected_ = true;
  LiveFlow& victim = flows_[0];
  const int src = victim.spec.src / kHostsPerLeaf, dst = victim.spec.dst / kHostsPerLeaf;
  victim.demand = setup_.slow_demand;
  victim.burst = setup_.slow_burst;
  victim.credit = static_cast<double>(victim.next);
  victim.credit_s = t;
  if (setup_.stall_s > 0) next_stall_s_ = t;
  if (setup_.fault_spine < 0) return;
  const int s = setup_.fault_spine;
  loss_[setup_.fault_up ? Up(src, s) : Down(s, dst)] = setup_.fault_forward;
  late_[setup_.fault_up ? Up(src, s) : Down(s, dst)] = setup_.late_share;
  loss_[setup_.fault_up ? Up(dst, s) : Down(s, src)] = setup_.fault_back;
}

void Fabric::Wake(int f, double t) {
  if (flows_[f].scheduled) return;
  flows_[f].scheduled = true;
  Push(t, Kind::kSend, {.flow = f});
}

// Packets that the application has handed over so far.
double Fabric::Brought(LiveFlow& flow, double t) {
  if (flow.demand >= 1) return 1e18;
  const double per_s = flow.demand * setup_.line_bps / kPacketBits;
  return flow.credit + std::floor((t - flow.credit_s) * per_s / flow.burst + 1) * flow.burst;
}

void Fabric::OnSend(int f, double t) {
  LiveFlow& flow = flows_[f];
  flow.scheduled = false;
  if (flow.next - flow.una >= flow.spec.window) return;  // an acknowledgement wakes it
  if (t < flow.blocked_until) return Wake(f, flow.blocked_until);
  const double brought = Brought(flow, t);
  if (static_cast<double>(flow.next) >= brought) {
    const double per_s = flow.demand * setup_.line_bps / kPacketBits;
    return Wake(f, flow.credit_s + (brought - flow.credit) / per_s + 1e-6);
  }
  double& nic = nic_free_[flow.spec.src];
  if (nic > t) return Wake(f, nic + Uniform() * 2e-6);
  nic = t + kPacketBits / setup_.line_bps;
  const bool last = static_cast<double>(flow.next + 1) >= brought || flow.next + 1 - flow.una >= flow.spec.window;
  if (flow.next == flow.una) flow.progress_s = t;
  Push(nic + kHopS, Kind::kHop, {.flow = f, .psn = flow.next, .slot = flow.spec.slot, .ask = last});
  ++flow.next;
  ++flow.packets;
  ++flow.sent;
  flow.max_sent = std::max(flow.max_sent, flow.next);
  Wake(f, t + kPacketBits / flow.sender.Rate(t) * (0.97 + 0.06 * Uniform()));
}

void Fabric::OnHop(Packet p, double t) {
  LiveFlow& flow = flows_[p.flow];
  const int link = Path(flow.spec.src, flow.spec.dst, p.slot)[p.hop];
  if ((loss_[link] > 0 && Uniform() < loss_[link]) || links_[link].WaitS(t) > 20e-3) {
    flow.lost += loss_[link] > 0 ? 1 : 0;
    return;
  }
  double done = links_[link].Send(t, Uniform(), &p.ce) + kHopS;
  if (late_[link] > 0 && Uniform() < late_[link]) {
    done += setup_.late_s * Uniform();
  }
  ++p.hop;
  if (p.hop < 3) return Push(done, Kind::kHop, p);
  OnArrival(p, done);
}

void Fabric::OnArrival(const Packet& p, double t) {
  LiveFlow& flow = flows_[p.flow];
  ++flow.arrived;
  if (p.psn > flow.arriving) {
    ++flow.gaps;
    flow.lost += setup_.late_share > 0 && injected_ ? 1 : 0;  // overtook one: had an effect
  }
  flow.arriving = std::max(flow.arriving, p.psn + 1);
  if (p.ce && t - flow.last_cnp_s > setup_.cnp_interval_s) {
    flow.last_cnp_s = t;
    Answer(Kind::kCnp, p, t);
  }
  const bool slow = injected_ && inject_ && flow.spec.dst == setup_.flows[0].dst;
  if (p.psn > flow.expected) {
    if (flow.nak_for != flow.expected) {
      flow.nak_for = flow.expected;
      Answer(Kind::kNak, {.flow = p.flow, .psn = flow.expected}, t);
    }
    return;
  }
  if (slow && setup_.rnr_message > 0 && p.psn == flow.expected && p.psn % setup_.rnr_message == 0) {
    if (t < flow.ready_at) {
      flow.nak_for = flow.expected;  // what follows is dropped in silence
      return Answer(Kind::kRnr, p, t);
    }
    flow.ready_at =
        std::max(flow.ready_at, t - 1e-3) + setup_.rnr_message * kPacketBits / setup_.line_bps / setup_.serve_share;
  }
  double& host = host_free_[flow.spec.dst];
  if (slow && next_stall_s_ <= t) {
    host = std::max(host, t) + setup_.stall_s;
    next_stall_s_ = host + Exponential(setup_.stall_every_s);
  }
  const bool drags = slow && setup_.serve_share > 0 && setup_.rnr_message == 0;
  host = std::max(host, t) + (drags ? kPacketBits / setup_.line_bps / setup_.serve_share : 2e-6);
  if (p.psn == flow.expected) {
    ++flow.expected;
    flow.good += t > kInjectS + 0.5 ? 1 : 0;
  }
  if (++flow.unacked < flow.spec.ack_every && !p.ask) return;
  flow.unacked = 0;
  Answer(Kind::kAck, {.flow = p.flow, .psn = flow.expected}, host);
}

// Sent by the receiver at t.
void Fabric::Answer(Kind kind, const Packet& p, double t) {
  const FlowSpec& spec = flows_[p.flow].spec;
  const std::vector<int> back = Path(spec.dst, spec.src, spec.ack_slot);
  if (LostOn(back)) return;
  Push(t + kBaseS + WaitOn(back, t), kind, p);
}

void Fabric::OnAnswer(const Event& e) {
  LiveFlow& flow = flows_[e.p.flow];
  switch (e.kind) {
    case Kind::kCnp:
      ++flow.cnps;
      flow.sender.OnCnp(e.t);
      return;
    case Kind::kAck:
      ++flow.acks;
      break;
    case Kind::kNak:
      ++flow.naks;
      break;
    default:
      ++flow.rnr;
      flow.blocked_until = e.t + setup_.rnr_timer_s;
  }
  if (e.p.psn > flow.una) flow.progress_s = e.t;
  flow.una = std::max(flow.una, e.p.psn);
  if (e.kind != Kind::kAck) flow.next = std::max(flow.una, std::min(flow.next, e.p.psn));
  flow.next = std::max(flow.next, flow.una);
  Wake(e.p.flow, e.t);
}

void Fabric::Timeouts(double t) {
  for (size_t f = 0; f < flows_.size(); ++f) {
    LiveFlow& flow = flows_[f];
    if (flow.next <= flow.una || t - flow.progress_s < kTimeoutS || t < flow.blocked_until) continue;
    flow.next = flow.una;
    flow.progress_s = t;
    flow.nak_for = -1;
    Wake(static_cast<int>(f), t);
  }
}

void Fabric::Look(double t) {
  Timeouts(t);
  for (LiveFlow& flow : flows_) {
    flow.in_flight += static_cast<double>(flow.max_sent - flow.una);
    ++flow.looks;
  }
  if (!injected_ || t < kInjectS + kFailoverS || setup_.fault_spine < 0) return;
  const auto next = [&](int slot) { return (slot + 1) % setup_.spines; };
  for (LiveFlow& flow : flows_) {
    const auto dead = [&](int from, int to, int slot) {
      for (const int l : Path(from, to, slot)) {
        if (loss_[l] > 0.9) return true;
      }
      return false;
    };
    if (dead(flow.spec.src, flow.spec.dst, flow.spec.slot)) {
      flow.spec.slot = next(flow.spec.slot);
      flow.moved = true;
    }
    if (dead(flow.spec.dst, flow.spec.src, flow.spec.ack_slot)) flow.spec.ack_slot = next(flow.spec.ack_slot);
  }
}

void Fabric::ProbePair(int dst, double t) {
  const int src = flows_[0].spec.src;
  const double stall = Uniform() < 1e-3 ? Exponential(3e-3) : 0;  // of the machine, all slots
  std::vector<int> live;                                          // the peer's slots that it answers over
  for (int s = 0; s < setup_.spines; ++s) {
    bool dead = false;
    for (const int l : Path(dst, src, s)) dead = dead || loss_[l] > 0.9;
    if (!dead || t < kInjectS + kFailoverS) live.push_back(s);
  }
  ++round_[dst];
  for (int s = 0; s < setup_.spines; ++s) {
    Series& series = series_[dst][s];
    const double at = t + Uniform() * 2e-4;
    const std::vector<int> there = Path(src, dst, s), back = Path(dst, src, s);
    ++series.sent;
    const bool lost_there = LostOn(there);
    if (!lost_there) series.marked += MarkedOn(there, at) ? 1 : 0;
    if (!lost_there) series.queue_ns.push_back((WaitOn(there, at) + stall + Exponential(3e-6)) * 1e9);
    const int over = live.empty() ? s : live[(s + round_[dst]) % live.size()];
    const bool lost_back = LostOn(Path(dst, src, over));
    if (!lost_there && !lost_back) ++series.answered;
    // Of the peer's rounds, eight are seen at each look.
    if (setup_.probe_s >= kLookS / 8 || Uniform() < 8 * setup_.probe_s / kLookS) {
      ++series.peer_sent;
      const bool gone = LostOn(back);
      if (!gone) ++series.peer_heard;
      probes_lost_ += gone && dst == flows_[0].spec.dst ? 1 : 0;
    }
    probes_lost_ += (lost_there || lost_back) && dst == flows_[0].spec.dst ? 1 : 0;
  }
}

// Pairs with flows at every tick, the others every 100 ms.
void Fabric::Probe(double t) {
  const int src = flows_[0].spec.src;
  for (int h = 0; h < kHosts; ++h) {
    if (h / kHostsPerLeaf == src / kHostsPerLeaf) continue;
    bool active = false;
    for (const LiveFlow& flow : flows_) active = active || (flow.spec.src == src && flow.spec.dst == h);
    const double last = t - setup_.probe_s;
    if (active || std::floor(t * 10 + h * 0.1) != std::floor(last * 10 + h * 0.1)) ProbePair(h, t);
  }
}

void Fabric::EndWindow(double t) {
  CauseWindow w{.seconds = t - window_from_s_, .line_rate_bps = setup_.line_bps};
  window_from_s_ = t;
  const int src = flows_[0].spec.src;
  for (int h = 0; h < kHosts; ++h) {
    if (h / kHostsPerLeaf == src / kHostsPerLeaf) continue;
    CausePair pair{.pair = Key(h), .reverse_ns = kBaseS * 1e9};
    for (int s = 0; s < setup_.spines; ++s) {
      Series& d = series_[h][s];
      CausePath path{.slot = static_cast<uint8_t>(s), .base_ns = kBaseS * 1e9};
      path.last_link = 1 + static_cast<uint64_t>(Down(s, h / kHostsPerLeaf));
      path.usable = d.answered > 0;
      path.dead = !path.usable;
      path.peer_dead = d.peer_sent > 0 && d.peer_heard == 0;  // as the peer's agent says
      path.queue_samples = static_cast<int>(d.queue_ns.size());
      path.ecn_samples = path.queue_samples;
      path.marked = d.marked;
      if (path.queue_samples > 0) path.queue_ns = TrimmedMean(d.queue_ns);
      path.sent = d.sent;
      path.answered = d.answered;
      path.peer_sent = d.peer_sent;
      path.peer_heard = d.peer_heard;
      pair.paths.push_back(path);
      d = {};
    }
    for (size_t f = 0; f < flows_.size(); ++f) {
      LiveFlow& l = flows_[f];
      if (l.spec.src != src || l.spec.dst != h) continue;
      const int64_t missing = std::max<int64_t>(0, l.sent - l.arrived - l.missing);  // packets under way, too
      l.missing += missing;
      pair.flows.push_back(
          {.key = {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000100 + h), 0x100u + static_cast<uint32_t>(f)},
           .slot = static_cast<uint8_t>(l.spec.slot),
           .packets = l.packets,
           .bytes = static_cast<uint64_t>(static_cast<double>(l.packets) * kPacketBits / 8),
           .cnps = l.cnps,
           .rnr_naks = l.rnr,
           .seq_naks = l.naks,
           .acks = l.acks,
           .acks_known = true,
           .gaps_known = true,
           .gaps = l.gaps,
           .missing = static_cast<uint64_t>(missing),
           .in_flight = l.looks > 0 ? l.in_flight / l.looks : 0,
           .looks = l.looks,
           .moved = l.moved});
      l.packets = l.gaps = l.cnps = l.rnr = l.naks = l.acks = 0;
      l.in_flight = l.looks = 0;
      l.moved = false;
    }
    w.pairs.push_back(std::move(pair));
  }
  for (const CauseVerdict& v : raw_.Judge(w)) {
    if (v.pair != Key(flows_[0].spec.dst) || v.flow.dqpn != 0x100) continue;
    absl::StrAppend(&raw_text_, "\n    ", std::string(CauseName(v.cause)), ": ", v.text);
    for (const auto& [name, value] : v.evidence) absl::StrAppend(&raw_text_, " ", name, "=", value);
  }
  for (const CauseVerdict& v : causes_.Judge(w)) {
    if (v.pair == Key(flows_[0].spec.dst) && v.flow == FlowKey{}) verdict_ = v;
  }
}

void Fabric::Run(double seconds) {
  double next_look = kLookS, next_probe = 0, next_window = kInjectS;
  measured_s_ = seconds - kInjectS - 0.5;
  Push(0, Kind::kTick, {});
  while (!events_.empty() && events_.top().t < seconds + 1e-9) {
    const Event e = events_.top();
    events_.pop();  // before anything pushes
    if (!injected_ && inject_ && e.t >= kInjectS) Inject(e.t);
    for (; next_probe <= e.t; next_probe += setup_.probe_s) Probe(next_probe);
    for (; next_look <= e.t; next_look += kLookS) Look(next_look);
    for (; next_window <= e.t; next_window += kWindowS) EndWindow(next_window);
    switch (e.kind) {
      case Kind::kSend:
        OnSend(e.p.flow, e.t);
        break;
      case Kind::kHop:
        OnHop(e.p, e.t);
        break;
      case Kind::kTick:
        Push(e.t + 1e-3, Kind::kTick, {});
        break;
      default:
        OnAnswer(e);
    }
  }
  for (; next_window <= seconds + 1e-6; next_window += kWindowS) EndWindow(next_window);
}

}  // namespace cw::control::cause_sim
