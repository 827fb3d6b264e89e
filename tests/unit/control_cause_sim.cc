// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/control_cause_sim.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/unit/control_dcqcn.h"

namespace cw::control {
namespace {

constexpr double kPacketBits = 4228 * 8;
constexpr int kLeaves = 3, kHostsPerLeaf = 4, kHosts = kLeaves * kHostsPerLeaf;
constexpr double kHopS = 5e-6;        // one wire
constexpr double kBaseS = 4 * kHopS;  // one way, empty
constexpr double kInjectS = 0.5, kWindowS = 1.0, kLookS = 0.04;
constexpr double kFailoverS = 0.01;  // the kernel's
constexpr double kCnpIntervalS = 1e-3, kTimeoutS = 0.07;

struct FlowSpec {
  int src = 0, dst = 0, slot = 0;
  double demand = 1;  // share of the line
  int burst = 1;      // packets that the application brings at once, where the demand is below 1
  int window = 128;
  int ack_every = 4;
  int ack_slot = 0;
  bool from_injection = false;  // starts then
};

// Everything that a seed decides, before and after the injection.
struct Setup {
  double line_bps = 400e6;
  int spines = 4;
  double probe_s = 2e-3;
  std::vector<FlowSpec> flows;  // 0: the victim
  double slow_demand = 1;       // the victim's from the injection on
  int slow_burst = 1;
  double serve_share = 0;  // the receiver's host handles this share of the line; 0 = all
  int rnr_message = 0;     // packets per posted buffer; 0 = it is always ready
  double rnr_timer_s = 0;
  double stall_every_s = 0, stall_s = 0;
  int fault_spine = -1;
  bool fault_up = false;                     // leaf to spine, else spine to leaf
  double fault_forward = 0, fault_back = 0;  // share lost
  bool nic_shared = false;                   // by two flows of the victim's host
  int windows = 3;                           // after the injection
};

struct Packet {
  int flow = 0;
  int64_t psn = 0;
  int slot = 0;
  int hop = 0;
  bool ce = false, ask = false;
};

enum class Kind : uint8_t { kSend, kHop, kAck, kNak, kRnr, kCnp, kTick };

struct Event {
  double t;
  Kind kind;
  Packet p;
  bool operator<(const Event& o) const { return t > o.t; }
};

struct LiveFlow {
  FlowSpec spec;
  DcqcnSender sender;
  bool scheduled = false;
  double blocked_until = 0, progress_s = 0, credit_s = 0, last_cnp_s = -1;
  double demand = 1;
  int burst = 1;
  double credit = 0;  // packets that the application has brought
  int64_t next = 0, max_sent = 0, una = 0;
  int64_t expected = 0, nak_for = -1, unacked = 0;
  double ready_at = 0;  // the receiver's next buffer
  int64_t good = 0;     // delivered in the measured time
  uint64_t lost = 0;
  // of this window
  uint64_t packets = 0, cnps = 0, rnr = 0, naks = 0, acks = 0;
  double in_flight = 0;
  int looks = 0;
  bool moved = false;
};

struct Series {  // of one slot of one pair in this window
  std::vector<double> queue_ns;
  uint32_t sent = 0, answered = 0, peer_sent = 0, peer_heard = 0;
};

CauseRules Undamped(CauseRules rules) {
  rules.agree_windows = 1;
  return rules;
}

class Fabric {
 public:
  Fabric(const Setup& setup, bool inject, uint64_t seed, const CauseRules& rules);
  void Run(double seconds);
  double VictimBps() const { return static_cast<double>(flows_[0].good) * kPacketBits / measured_s_; }
  uint64_t Lost() const { return flows_[0].lost + probes_lost_; }
  const CauseVerdict& Verdict() const { return verdict_; }
  const std::string& RawText() const { return raw_text_; }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }
  int Up(int leaf, int spine) const { return leaf * setup_.spines + spine; }
  int Down(int spine, int leaf) const { return (kLeaves + leaf) * setup_.spines + spine; }
  int ToHost(int host) const { return 2 * kLeaves * setup_.spines + host; }
  std::vector<int> Path(int src, int dst, int slot) const {
    return {Up(src / kHostsPerLeaf, slot), Down(slot, dst / kHostsPerLeaf), ToHost(dst)};
  }
  double WaitOn(const std::vector<int>& path, double t) const;
  bool LostOn(const std::vector<int>& path);
  void Inject(double t);
  void Push(double t, Kind kind, const Packet& p) { events_.push({t, kind, p}); }
  void Wake(int f, double t);
  void OnSend(int f, double t);
  void OnHop(Packet p, double t);
  void OnArrival(const Packet& p, double t);
  void Answer(Kind kind, const Packet& p, double t);
  void OnAnswer(const Event& e);
  double Brought(LiveFlow& flow, double t);
  void Look(double t);
  void Probe(double t);
  void ProbePair(int dst, double t);
  void Timeouts(double t);
  void EndWindow(double t);
  PairKey Key(int dst) const { return {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000100 + dst)}; }

  const Setup setup_;
  bool inject_, injected_ = false;
  std::mt19937_64 random_;
  std::vector<MarkingLink> links_;
  std::vector<double> loss_;  // per link
  std::vector<LiveFlow> flows_;
  std::vector<double> nic_free_, host_free_;
  std::priority_queue<Event> events_;
  std::vector<std::vector<Series>> series_;  // per receiver and slot
  std::vector<int> round_;                   // per receiver
  double next_stall_s_ = 1e18;
  double window_from_s_ = 0, measured_s_ = 1;
  uint64_t probes_lost_ = 0;
  CauseState causes_, raw_;
  std::string raw_text_;  // what the rule found before damping, for people
  CauseVerdict verdict_;
};

Fabric::Fabric(const Setup& setup, bool inject, uint64_t seed, const CauseRules& rules)
    : setup_(setup),
      inject_(inject),
      random_(seed),
      nic_free_(kHosts),
      host_free_(kHosts),
      causes_(rules),
      raw_(Undamped(rules)) {
  const size_t links = 2 * kLeaves * setup.spines + kHosts;
  links_.assign(links, MarkingLink(setup.line_bps, kPacketBits));
  loss_.assign(links, 0);
  series_.assign(kHosts, std::vector<Series>(setup.spines));
  round_.assign(kHosts, 0);
  for (const FlowSpec& spec : setup.flows) {
    if (spec.from_injection && !inject) continue;
    LiveFlow f{.spec = spec, .sender = DcqcnSender(setup.line_bps)};
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
  const double done = links_[link].Send(t, Uniform(), &p.ce) + kHopS;
  ++p.hop;
  if (p.hop < 3) return Push(done, Kind::kHop, p);
  OnArrival(p, done);
}

void Fabric::OnArrival(const Packet& p, double t) {
  LiveFlow& flow = flows_[p.flow];
  if (p.ce && t - flow.last_cnp_s > kCnpIntervalS) {
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

double TrimmedMean(std::vector<double>& v) {
  std::sort(v.begin(), v.end());
  const size_t n = std::max<size_t>(1, v.size() - v.size() / 20);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += v[i];
  return sum / static_cast<double>(n);
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
      path.usable = d.answered > 0;
      path.queue_samples = static_cast<int>(d.queue_ns.size());
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
      pair.flows.push_back(
          {.key = {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000100 + h), 0x100u + static_cast<uint32_t>(f)},
           .slot = static_cast<uint8_t>(l.spec.slot),
           .packets = l.packets,
           .bytes = static_cast<uint64_t>(static_cast<double>(l.packets) * kPacketBits / 8),
           .cnps = l.cnps,
           .rnr_naks = l.rnr,
           .seq_naks = l.naks,
           .acks = l.acks,
           .in_flight = l.looks > 0 ? l.in_flight / l.looks : 0,
           .looks = l.looks,
           .moved = l.moved});
      l.packets = l.cnps = l.rnr = l.naks = l.acks = 0;
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

// ---- what a seed draws ----

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed * 7919 + 17) {}
  Setup Make(Cause injected);

 private:
  double Real(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  int Whole(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  bool Chance(double p) { return Real(0, 1) < p; }
  int HostOf(int leaf) { return leaf * kHostsPerLeaf + Whole(0, kHostsPerLeaf - 1); }
  FlowSpec Flow(int src, int dst, int slot);
  void Background();
  void Contention();
  void Incast();
  void SlowReceiver();
  void Harmless();

  std::mt19937_64 random_;
  Setup s_;
};

FlowSpec Draw::Flow(int src, int dst, int slot) {
  FlowSpec f{.src = src, .dst = dst, .slot = slot};
  f.window = 1 << Whole(5, 8);
  f.ack_every = 1 << Whole(0, 4);
  f.ack_slot = Whole(0, s_.spines - 1);
  return f;
}

// Flows of others that take little, and never the victim's ends.
void Draw::Background() {
  const int count = Whole(0, 5);
  for (int i = 0; i < count; ++i) {
    const int from = Whole(0, kLeaves - 1);
    FlowSpec f = Flow(HostOf(from), HostOf((from + Whole(1, kLeaves - 1)) % kLeaves), Whole(0, s_.spines - 1));
    if (f.src == s_.flows[0].src || f.dst == s_.flows[0].dst) continue;
    f.demand = Real(0.02, 0.12);
    f.burst = 1 << Whole(0, 4);
    s_.flows.push_back(f);
  }
}

// Elephants of others on one of the two fabric links that the victim takes.
void Draw::Contention() {
  const FlowSpec victim = s_.flows[0];
  const int leaf = victim.src / kHostsPerLeaf, to = victim.dst / kHostsPerLeaf;
  const bool up = Chance(0.5);
  if (up && s_.spines == 2) {  // both of the leaf's uplinks are full, the victim's with two flows, the other with two
    for (int i = 1; i <= 3; ++i) {
      const int dst_leaf = (leaf + 1 + i % 2) % kLeaves;
      FlowSpec f =
          Flow(leaf * kHostsPerLeaf + (victim.src + i) % kHostsPerLeaf,
               dst_leaf * kHostsPerLeaf + (victim.dst + i) % kHostsPerLeaf, i == 1 ? victim.slot : 1 - victim.slot);
      f.from_injection = true;
      s_.flows.push_back(f);
    }
    return;
  }
  const int count = Whole(1, 3);
  for (int i = 0; i < count; ++i) {
    const int src_leaf = up ? leaf : 3 - leaf - to;
    const int dst_leaf = up ? (Chance(0.5) ? to : 3 - leaf - to) : to;
    const int src = src_leaf * kHostsPerLeaf + (victim.src + 1 + i) % kHostsPerLeaf;
    const int dst = dst_leaf * kHostsPerLeaf + (victim.dst + 1 + i) % kHostsPerLeaf;
    FlowSpec f = Flow(src, dst, victim.slot);
    f.from_injection = true;
    s_.flows.push_back(f);
  }
}

void Draw::Incast() {
  const FlowSpec victim = s_.flows[0];
  const int leaf = victim.src / kHostsPerLeaf, to = victim.dst / kHostsPerLeaf, third = 3 - leaf - to;
  const int count = Whole(1, 6);
  for (int i = 0; i < count; ++i) {
    const bool near = i % 2 == 0;  // with the victim's leaf, else of the third
    const int src = (near ? leaf : third) * kHostsPerLeaf + (victim.src + 1 + i / 2) % kHostsPerLeaf;
    FlowSpec f = Flow(src, victim.dst, (victim.slot + 1 + i / 2) % s_.spines);
    f.from_injection = true;
    s_.flows.push_back(f);
  }
}

void Draw::SlowReceiver() {
  s_.serve_share = Real(0.08, 0.65);
  switch (Whole(0, 2)) {
    case 0:
      return;  // handles every packet slowly
    case 1:
      s_.rnr_message = 1 << Whole(2, 6);
      s_.rnr_timer_s = Real(0.2e-3, 5e-3);
      return;
    default:  // stops now and then
      s_.serve_share = 0;
      s_.stall_s = Real(5e-3, 60e-3);
      s_.stall_every_s = s_.stall_s * Real(0.3, 2);
  }
}

// What must not be taken for a cause.
void Draw::Harmless() {
  const FlowSpec victim = s_.flows[0];
  switch (Whole(0, 3)) {
    case 0:
      return;
    case 1:  // dead both ways: the liveness rule's business
      s_.fault_spine = Whole(0, s_.spines - 1);
      s_.fault_up = Chance(0.5);
      s_.fault_forward = s_.fault_back = 1;
      return;
    case 2:  // others collide elsewhere
      for (int i = 1; i <= 2; ++i) {
        const int src = victim.src / kHostsPerLeaf * kHostsPerLeaf + (victim.src + i) % kHostsPerLeaf;
        const int dst = victim.dst / kHostsPerLeaf * kHostsPerLeaf + (victim.dst + i) % kHostsPerLeaf;
        FlowSpec f = Flow(src, dst, (victim.slot + 1) % s_.spines);
        f.from_injection = true;
        s_.flows.push_back(f);
      }
      return;
    default: {  // the host's other flow takes half of its NIC
      s_.nic_shared = true;
      FlowSpec f = Flow(victim.src, (victim.dst / kHostsPerLeaf) * kHostsPerLeaf + (victim.dst + 1) % kHostsPerLeaf,
                        (victim.slot + 1) % s_.spines);
      f.from_injection = true;
      s_.flows.push_back(f);
    }
  }
}

Setup Draw::Make(Cause injected) {
  s_.line_bps = 100e6 * (1 << Whole(0, 2));
  s_.spines = Whole(2, 6);
  s_.probe_s = 1e-3 * (1 << Whole(0, 2));
  const int leaf = Whole(0, 2);
  s_.flows.push_back(Flow(HostOf(leaf), HostOf((leaf + Whole(1, 2)) % kLeaves), Whole(0, s_.spines - 1)));
  Background();
  switch (injected) {
    case Cause::kFabricContention:
      Contention();
      break;
    case Cause::kIncast:
      Incast();
      break;
    case Cause::kSlowReceiver:
      SlowReceiver();
      break;
    case Cause::kSlowSender:
      s_.slow_demand = Real(0.03, 0.75);
      s_.slow_burst = 1 << Whole(0, 6);
      break;
    case Cause::kOneDirection:
    case Cause::kGreyLoss: {
      s_.fault_spine = Chance(0.7) ? s_.flows[0].slot : Whole(0, s_.spines - 1);
      s_.fault_up = Chance(0.5);
      const double share = injected == Cause::kOneDirection ? 1 : std::exp(Real(std::log(0.005), std::log(0.4)));
      (Chance(0.6) ? s_.fault_forward : s_.fault_back) = share;
      s_.windows = injected == Cause::kGreyLoss ? 5 : 3;
      break;
    }
    case Cause::kNone:
      Harmless();
      break;
  }
  return s_;
}

std::string Describe(const Setup& s, const std::string& found, double share) {
  const FlowSpec& f = s.flows[0];
  return absl::StrFormat(
      "line %.0fM, %d spines, probes every %.0f ms, %d flows, window %d, ack every %d; demand %.2f burst %d; serve "
      "%.2f "
      "rnr %d stall %.0f/%.0f ms; fault %.3f/%.3f; rate share %.2f; %s",
      s.line_bps / 1e6, s.spines, s.probe_s * 1e3, s.flows.size(), f.window, f.ack_every, s.slow_demand, s.slow_burst,
      s.serve_share, s.rnr_message, s.stall_s * 1e3, s.stall_every_s * 1e3, s.fault_forward, s.fault_back, share,
      found);
}

}  // namespace

CauseResult SimulateCause(const CauseScenario& scenario, const CauseRules& rules) {
  const Setup setup = Draw(scenario.seed * 8 + static_cast<uint64_t>(scenario.injected)).Make(scenario.injected);
  Fabric control(setup, false, scenario.seed * 2, rules);
  control.Run(kInjectS + 1.5);
  Fabric run(setup, true, scenario.seed * 2 + 1, rules);
  run.Run(kInjectS + setup.windows * kWindowS);
  CauseResult out{.found = run.Verdict().cause};
  const double share = run.VictimBps() / control.VictimBps();
  out.detail = Describe(setup, run.RawText(), share);
  if (control.VictimBps() < 0.85 * setup.line_bps) return out;  // slow before anything was done
  switch (scenario.injected) {
    case Cause::kNone:
      out.valid = share > 0.9 || setup.nic_shared;
      break;
    case Cause::kOneDirection:
    case Cause::kGreyLoss:
      out.valid = run.Lost() >= 5;
      out.truth = scenario.injected;
      break;
    default:
      out.valid = share < 0.85 || share > 0.95;
      out.truth = share < 0.85 ? scenario.injected : Cause::kNone;
  }
  return out;
}

}  // namespace cw::control
