// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/control_fabric_sim.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>
#include <span>

#include "tests/unit/control_dcqcn.h"
#include "userspace/control/contention_rules.h"

namespace cw::control {
namespace {

constexpr double kPacketBits = 4228 * 8;
constexpr double kRoundTripS = 100e-6;
constexpr double kCnpIntervalS = 1e-3;

struct SimFlow {
  int host = 0;
  int spine = 0;
  DcqcnSender sender;
  double next_s = 0;
  double last_cnp_s = -1;
  uint64_t window_bytes = 0, window_cnps = 0;
  double good_bits = 0;
  double most_bps = 1e18;
  double ends_s = 1e18;
  double round_left_bits = 1e18;
  int wanted = -1;  // pending move, made when something lets it
  double wanted_at_s = 0;
};

struct Cnp {
  double t;
  int flow;
  bool operator<(const Cnp& o) const { return t > o.t; }
};

struct SimHost {
  ContentionState state;
  double next_window_s;
  double last_window_s = 0;
  std::vector<std::vector<double>> queue;  // per slot, this window
  std::vector<int> marked;
  std::vector<Reprobe> reprobed;  // since the last window
};

struct SimJob {
  int sending = 0;
  int rounds_left = 0;
};

class Simulation {
 public:
  Simulation(const SimSpec& spec, const ContentionRules& rules);
  SimResult Run();

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }
  void SendBurst(int f, double t);
  void StartRound(int job, double t);
  void EndRound(int f, double t);
  void Probe(double t);
  void Decide(int h, double t);
  int Choose(SimHost& host, const Move& move, double t);
  void Place(SimFlow& flow, int spine, double t);
  void NoteBalance(double t);
  FlowKey Key(int f) const { return {Addr::FromV4(0x0a00000a + flows_[f].host), Addr::FromV4(0x0a00010a), 0x100u + f}; }

  SimSpec spec_;
  std::mt19937_64 random_;
  std::vector<MarkingLink> links_;
  MarkingLink receiver_;
  std::vector<SimFlow> flows_;
  std::vector<SimHost> hosts_;
  std::vector<SimJob> jobs_;
  std::priority_queue<Cnp> cnps_;
  double next_probe_s_ = 0;
  SimResult result_;
};

Simulation::Simulation(const SimSpec& spec, const ContentionRules& rules)
    : spec_(spec),
      random_(spec.seed),
      links_(spec.spines, MarkingLink(spec.link_bps, kPacketBits)),
      receiver_(spec.receiver_bps, kPacketBits) {
  for (int h = 0; h < spec.hosts; ++h) {
    hosts_.push_back({ContentionState(rules, spec.seed * 1000 + h), spec.window_s * (1 + Uniform()), 0, {}, {}, {}});
    if (spec.on_start) spec.on_start(h, hosts_.back().state);
    hosts_[h].queue.resize(spec.spines);
    hosts_[h].marked.resize(spec.spines);
  }
  for (int f = 0; f < spec.flows; ++f) {
    const int spine = spec.placement.empty() ? static_cast<int>(random_() % spec.spines) : spec.placement[f];
    flows_.push_back({f % spec.hosts, spine, DcqcnSender(spec.link_bps), Uniform() * 1e-3});
  }
  for (int f = 0; f < spec.mice + spec.ended; ++f) {
    flows_.push_back({f % spec.hosts, 0, DcqcnSender(spec.link_bps), Uniform() * 1e-3});
    if (f < spec.mice) flows_.back().most_bps = spec.mouse_bps;
    if (f >= spec.mice) flows_.back().ends_s = spec.ended_s;
  }
  jobs_.resize(spec.jobs, {.rounds_left = spec.rounds});
  for (int j = 0; j < spec.jobs; ++j) StartRound(j, 0);
  NoteBalance(0);
}

void Simulation::StartRound(int job, double t) {
  jobs_[job].sending = 0;
  for (SimFlow& flow : flows_) {
    if (flow.host % spec_.jobs != job) continue;
    ++jobs_[job].sending;
    flow.round_left_bits = spec_.round_bytes * 8;
    flow.next_s = t + Uniform() * 1e-3;
  }
}

void Simulation::EndRound(int f, double t) {
  flows_[f].next_s = 1e18;
  const int job = flows_[f].host % spec_.jobs;
  if (--jobs_[job].sending > 0) return;
  if (--jobs_[job].rounds_left > 0) return StartRound(job, t);
  const auto going_on = [](const SimJob& j) { return j.rounds_left > 0; };
  if (std::none_of(jobs_.begin(), jobs_.end(), going_on)) result_.done_s = t;
}

void Simulation::SendBurst(int f, double t) {
  SimFlow& flow = flows_[f];
  if (flow.wanted >= 0 && t >= flow.wanted_at_s) {
    Place(flow, flow.wanted, t);
    flow.wanted = -1;
  }
  if (t >= flow.ends_s) {
    flow.next_s = 1e18;
    return;
  }
  const double gap = kPacketBits / std::min(flow.sender.Rate(t), flow.most_bps);
  const int packets = std::clamp(static_cast<int>(std::round(spec_.burst_s / gap)), 1, 4);
  for (int i = 0; i < packets; ++i) {
    bool ce = false;
    double done = links_[flow.spine].Send(t, Uniform(), &ce);
    if (spec_.receiver_bps > 0) done = receiver_.Send(done, Uniform(), &ce);
    flow.window_bytes += static_cast<uint64_t>(kPacketBits / 8);
    if (t >= spec_.measure_from_s) flow.good_bits += kPacketBits;
    if (ce && done - flow.last_cnp_s > kCnpIntervalS) {
      flow.last_cnp_s = done;
      cnps_.push({done + kRoundTripS, f});
    }
  }
  flow.next_s = t + gap * packets * (0.95 + 0.1 * Uniform());
  flow.round_left_bits -= packets * kPacketBits;
  if (flow.round_left_bits <= 0) EndRound(f, t);
}

void Simulation::Probe(double t) {
  for (SimHost& host : hosts_) {
    for (int s = 0; s < spec_.spines; ++s) {
      const double at = t + Uniform() * 1e-3;  // senders' own bursts pass the queue in between
      double wait = links_[s].WaitS(at) + Exponential(3e-6);
      if (spec_.receiver_bps > 0) wait += receiver_.WaitS(at + wait);
      if (Uniform() < spec_.stall_share) wait += Exponential(3e-3);
      host.queue[s].push_back(wait * 1e9);
      host.marked[s] += spec_.marks && Uniform() < links_[s].MarkChance(at);
    }
  }
}

double TrimmedMean(std::vector<double>& v) {
  std::sort(v.begin(), v.end());
  const size_t n = std::max<size_t>(1, v.size() - v.size() / 20);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += v[i];
  return sum / static_cast<double>(n);
}

void Simulation::Decide(int h, double t) {
  SimHost& host = hosts_[h];
  Observation o;
  o.now_ns = static_cast<int64_t>(t * 1e9);
  o.window_ns = static_cast<int64_t>((t - host.last_window_s) * 1e9);
  host.last_window_s = t;
  host.next_window_s = t + spec_.window_s;
  PairObservation pair{{Addr::FromV4(0x0a00000a + h), Addr::FromV4(0x0a00010a)}, true, {}, {}};
  for (int s = 0; s < spec_.spines; ++s) {
    auto& q = host.queue[s];
    const int n = static_cast<int>(q.size());
    pair.paths.push_back({.slot = static_cast<uint8_t>(s),
                          .usable = true,
                          .queue_samples = n,
                          .queue_ns = n > 0 ? TrimmedMean(q) : 0,
                          .base_ns = 6000,
                          .ecn_samples = spec_.marks ? n : 0,
                          .marked = host.marked[s],
                          .links = {}});
    q.clear();
    host.marked[s] = 0;
  }
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (flows_[f].host != h) continue;
    SimFlow& flow = flows_[f];
    const bool at_rest = flow.next_s > t + 1;
    pair.flows.push_back(
        {Key(f), static_cast<uint8_t>(flow.spine), flow.window_bytes, flow.window_cnps, false, at_rest});
    flow.window_bytes = flow.window_cnps = 0;
  }
  o.pairs.push_back(std::move(pair));
  o.reprobed = std::exchange(host.reprobed, {});
  const Decision d = DecideMoves(o, host.state);
  if (spec_.on_window) spec_.on_window(h, o, d, host.state);
  for (const Finding& f : d.findings) result_.findings_full += f.kind == Finding::Kind::kReceiverOrEveryPath;
  for (const Move& m : d.moves) {
    SimFlow& flow = flows_[m.flow.dqpn - 0x100u];
    const int to = Choose(host, m, t);
    ++result_.moves;
    result_.turned += to != m.to;
    result_.late_moves += t > spec_.seconds / 2;
    if (m.force) {
      flow.good_bits -= t >= spec_.measure_from_s ? flow.sender.Rate(t) * 3 * kRoundTripS : 0;  // go-back-N
      Place(flow, to, t);
    } else {
      flow.wanted = to;
      flow.wanted_at_s = t + Exponential(0.2);
    }
  }
}

// One probe of each candidate, which is what a few in a row would tell.
int Simulation::Choose(SimHost& host, const Move& move, double t) {
  if (!spec_.look_again || move.second == kSlotNone) return move.to;
  const auto look = [&](uint8_t slot) {
    return FreshLook{
        .slot = slot, .usable = true, .samples = 1, .queue_ns = 1e9 * links_[slot].WaitS(t), .base_ns = 6000};
  };
  host.reprobed.push_back(
      {.pair = move.pair, .flow = move.flow, .stays = true, .candidates = {look(move.to), look(move.second)}});
  return Settle(RulesOf(host.state), host.reprobed.back()).to;
}

void Simulation::Place(SimFlow& flow, int spine, double t) {
  flow.spine = spine;
  NoteBalance(t);
}

void Simulation::NoteBalance(double t) {
  std::vector<int> count(spec_.spines);
  for (int f = 0; f < spec_.flows; ++f) ++count[flows_[f].spine];
  const auto [least, most] = std::minmax_element(count.begin(), count.end());
  if (*most - *least > 1) {
    result_.balanced_at_s = -1;
  } else if (result_.balanced_at_s < 0) {
    result_.balanced_at_s = t;
  }
  result_.final_count = count;
}

SimResult Simulation::Run() {
  while (true) {
    size_t first = 0;
    for (size_t f = 1; f < flows_.size(); ++f) {
      if (flows_[f].next_s < flows_[first].next_s) first = f;
    }
    const double t = flows_[first].next_s;
    while (!cnps_.empty() && cnps_.top().t <= t) {
      ++flows_[cnps_.top().flow].window_cnps;
      flows_[cnps_.top().flow].sender.OnCnp(cnps_.top().t);
      cnps_.pop();
    }
    if (t >= spec_.seconds) break;
    for (; next_probe_s_ <= t; next_probe_s_ += 1e-3) Probe(next_probe_s_);
    for (size_t h = 0; spec_.steer && h < hosts_.size(); ++h) {
      if (hosts_[h].next_window_s <= t) Decide(static_cast<int>(h), t);
    }
    SendBurst(static_cast<int>(first), t);
  }
  result_.slowest_bps = 1e18;
  for (const SimFlow& f : std::span(flows_).first(spec_.flows)) {
    result_.goodput_bps.push_back(f.good_bits / (spec_.seconds - spec_.measure_from_s));
    result_.slowest_bps = std::min(result_.slowest_bps, result_.goodput_bps.back());
  }
  return std::move(result_);
}

}  // namespace

SimResult Simulate(const SimSpec& spec, const ContentionRules& rules) { return Simulation(spec, rules).Run(); }

}  // namespace cw::control
