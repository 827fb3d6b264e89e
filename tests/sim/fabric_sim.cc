// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fabric_sim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "tests/sim/fabric_tree.h"
#include "tests/sim/host_probes.h"
#include "tests/sim/max_min.h"
#include "userspace/control/best_of_two.h"
#include "userspace/control/contention.h"
#include "userspace/control/contention_rules.h"

namespace cw::sim {
namespace {

constexpr double kBaseNs = 4000;
constexpr double kNoiseNs = 200;  // of a delay's measurement
constexpr int kSlots = 16;
constexpr int kNoPath = -1;
constexpr int kCentralPasses = 20;
constexpr int64_t kLastLookNs = 4'000'000;  // as agents wait for the last look before a move

struct Flow {
  int nic = 0;
  int peer = 0;  // of its NIC's
  int slot = 0;
  int wanted = -1;  // pending move
  int left = kNoPath;
};

struct Peer {
  int to = 0;
  int known = 0;  // slots below it hold the paths that discovery found; others stand for flows' own ports
  std::array<int, kSlots> path{};
};

struct Nic {
  std::vector<Peer> peers;
  std::vector<int> flows;
  std::unique_ptr<control::ContentionState> state;
  int64_t phase_ns = 0;  // of its probes
  std::vector<control::Reprobe> reprobed;
};

struct Links {
  int n = 0;
  Tree::Route at{};
};

class Simulation {
 public:
  Simulation(const FabricSimSpec& spec, const LinkModel& links);
  FabricSimResult Run();

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Normal() { return std::normal_distribution<double>(0, 1)(random_); }
  Peer Discover(int nic, int to);
  void PlanProbes();
  Rates Central();
  void Begin(const std::vector<int>& hashed);
  int NativeSlot(Peer& peer, int path);
  Links LinksOf(const Flow& flow, int path) const;
  void Put(int f, int path);
  void Place(int f, int slot);
  void Share();
  LinkModel::Sample Probe(const Tree::Route& links, int hops, int64_t t_ns);
  control::PathObservation ObservePath(int nic, const Peer& peer, int slot, int64_t now_ns);
  control::FreshLook LookAgain(int nic, const Peer& peer, int slot, int64_t now_ns);
  control::Move LastLook(int nic, const control::Move& move, int64_t now_ns);
  control::FlowObservation ObserveFlow(int f);
  control::Observation Observe(int nic, int64_t now_ns);
  void Decide(int nic, int64_t now_ns, WindowResult& out);
  Rates Measure() const;
  static Addr Address(int nic) { return Addr::FromV4(0x0a000000u + static_cast<uint32_t>(nic)); }

  const FabricSimSpec spec_;
  const LinkModel& model_;
  const Tree tree_;
  std::mt19937_64 random_;
  std::vector<Nic> nics_;
  std::vector<Flow> flows_;
  std::vector<RoutedFlow> routed_;  // same index
  MaxMin sharing_;
  std::vector<int> wanted_;  // per link: as many flows want it as LinkModel knows them
  std::vector<int> joined_;  // per link: flows that came in this window
  int64_t probe_ns_ = 0;     // between two probes of a path
};

Simulation::Simulation(const FabricSimSpec& spec, const LinkModel& links)
    : spec_(spec),
      model_(links),
      tree_(spec.ports, spec.pods),
      random_(spec.seed),
      nics_(tree_.nics),
      sharing_(tree_.Links()),
      wanted_(tree_.Links()),
      joined_(tree_.Links()) {
  std::vector<int> senders(tree_.nics);
  std::iota(senders.begin(), senders.end(), 0);
  std::shuffle(senders.begin(), senders.end(), random_);
  const size_t least = static_cast<size_t>(spec.peers) + 1;
  senders.resize(std::max(least, static_cast<size_t>(spec.sending * tree_.nics)));
  PlanProbes();
  for (size_t i = 0; i < senders.size(); ++i) {
    Nic& nic = nics_[senders[i]];
    for (int p = 1; p <= spec.peers; ++p) {
      nic.peers.push_back(Discover(senders[i], senders[(i + static_cast<size_t>(p)) % senders.size()]));
    }
    nic.state = std::make_unique<control::ContentionState>(control::ContentionRules(), random_());
    nic.phase_ns = static_cast<int64_t>(Uniform() * static_cast<double>(probe_ns_));
    for (int f = 0; f < spec.flows_per_nic; ++f) {
      nic.flows.push_back(static_cast<int>(flows_.size()));
      flows_.push_back({.nic = senders[i], .peer = f % spec.peers});
    }
  }
  routed_.resize(flows_.size());
}

// Slots are numbered by their hops: by switch, here.
Peer Simulation::Discover(int nic, int to) {
  Peer peer{.to = to};
  peer.path.fill(kNoPath);
  const int all = tree_.Paths(nic, to);
  const int wanted = std::min(all, spec_.probe.max_paths);
  while (peer.known < wanted) {
    const int path = static_cast<int>(random_() % static_cast<uint64_t>(all));
    const auto end = peer.path.begin() + peer.known;
    if (std::find(peer.path.begin(), end, path) == end) peer.path[peer.known++] = path;
  }
  std::sort(peer.path.begin(), peer.path.begin() + peer.known);
  return peer;
}

void Simulation::PlanProbes() {
  probe::Cadence cadence(AgentCadence(spec_.probe));
  const int native = spec_.placed ? 0 : std::min(spec_.flows_per_nic, kSlots - spec_.probe.max_paths);
  AddPeers(spec_.probe, spec_.peers, spec_.idle_peers, spec_.probe.max_paths + native, cadence);
  probe_ns_ = cadence.IntervalNs(0);
}

Links Simulation::LinksOf(const Flow& flow, int path) const {
  Links out;
  out.n = tree_.Links(flow.nic, nics_[flow.nic].peers[flow.peer].to, path, out.at);
  return out;
}

void Simulation::Put(int f, int path) {
  const Links links = LinksOf(flows_[f], path);
  routed_[f].hops = links.n;
  routed_[f].links = links.at;
}

Rates Simulation::Measure() const {
  std::vector<double> rates;
  rates.reserve(routed_.size());
  for (const RoutedFlow& f : routed_) rates.push_back(f.rate * spec_.flows_per_nic);
  std::sort(rates.begin(), rates.end());
  return {.mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size()),
          .p1 = rates[rates.size() / 100],
          .least = rates[0]};
}

// Known paths dealt out by one that sees every flow: each in turn goes where its fullest link is least full, until none
// can do better.
Rates Simulation::Central() {
  std::vector<int> count(tree_.Links()), at(flows_.size());
  const auto cost = [&](int f, int path) {
    const Links links = LinksOf(flows_[f], path);
    int most = 0, sum = 0;
    for (int i = 1; i + 1 < links.n; ++i) {
      most = std::max(most, count[links.at[i]]);
      sum += count[links.at[i]];
    }
    return std::pair(most, sum);
  };
  const auto add = [&](int f, int path, int by) {
    const Links links = LinksOf(flows_[f], path);
    for (int i = 0; i < links.n; ++i) count[links.at[i]] += by;
  };
  for (size_t f = 0; f < flows_.size(); ++f) {
    const Peer& peer = nics_[flows_[f].nic].peers[flows_[f].peer];
    at[f] = peer.path[f % static_cast<size_t>(peer.known)];
    add(static_cast<int>(f), at[f], 1);
  }
  bool moved = true;
  for (int pass = 0; pass < kCentralPasses && moved; ++pass) {
    moved = false;
    for (int f = 0; f < static_cast<int>(flows_.size()); ++f) {
      const Peer& peer = nics_[flows_[f].nic].peers[flows_[f].peer];
      add(f, at[f], -1);
      int best = at[f];
      for (int s = 0; s < peer.known; ++s) {
        if (cost(f, peer.path[s]) < cost(f, best)) best = peer.path[s];
      }
      moved |= best != at[f];
      at[f] = best;
      add(f, best, 1);
    }
  }
  for (int f = 0; f < static_cast<int>(flows_.size()); ++f) Put(f, at[f]);
  Share();
  return Measure();
}

// A flow's own port stands in a slot of its own, unless its path is known. With none free it is put on a known one.
int Simulation::NativeSlot(Peer& peer, int path) {
  const auto found = std::find(peer.path.begin(), peer.path.end(), path);
  if (found != peer.path.end()) return static_cast<int>(found - peer.path.begin());
  const auto free = std::find(peer.path.begin() + peer.known, peer.path.end(), kNoPath);
  if (free == peer.path.end()) return static_cast<int>(random_() % static_cast<uint64_t>(peer.known));
  *free = path;
  return static_cast<int>(free - peer.path.begin());
}

void Simulation::Begin(const std::vector<int>& hashed) {
  for (Nic& nic : nics_) {
    for (size_t i = 0; i < nic.flows.size(); ++i) {
      Flow& flow = flows_[nic.flows[i]];
      Peer& peer = nic.peers[flow.peer];
      const size_t turn = static_cast<size_t>(flow.nic & 0xff) + i;  // as cw_next_slot takes it
      flow.slot = spec_.placed ? static_cast<int>(turn % static_cast<size_t>(peer.known))
                               : NativeSlot(peer, hashed[nic.flows[i]]);
      Put(nic.flows[i], peer.path[flow.slot]);
    }
  }
  Share();
}

void Simulation::Place(int f, int slot) {
  Flow& flow = flows_[f];
  Nic& nic = nics_[flow.nic];
  Peer& peer = nic.peers[flow.peer];
  const int from = std::exchange(flow.slot, slot);
  flow.left = peer.path[from];
  Put(f, peer.path[slot]);
  for (int i = 1; i + 1 < routed_[f].hops; ++i) ++joined_[routed_[f].links[i]];
  const auto stays = [&](int other) { return flows_[other].peer == flow.peer && flows_[other].slot == from; };
  if (from >= peer.known && std::none_of(nic.flows.begin(), nic.flows.end(), stays)) peer.path[from] = kNoPath;
}

// A link that holds n flows back is as one that n senders share; what others send there counts as flows of a NIC's
// share.
void Simulation::Share() {
  sharing_.Share(routed_);
  for (int l = 0; l < tree_.Links(); ++l) {
    const int held = sharing_.HeldBack(l);
    const double others = sharing_.Load(l) - held * (held > 0 ? sharing_.ShareOn(l) : 0);
    wanted_[l] = held + static_cast<int>(std::lround(std::max(0.0, others) * spec_.flows_per_nic));
  }
}

// What a probe that is sent at t_ns waits for, and the chance of its being marked.
LinkModel::Sample Simulation::Probe(const Tree::Route& links, int hops, int64_t t_ns) {
  double wait = kNoiseNs * std::fabs(Normal()), clean = 1;
  for (int i = 1; i < hops; ++i) {
    const LinkModel::Sample sample = model_.At(wanted_[links[i]], static_cast<uint32_t>(links[i]), t_ns);
    wait += sample.wait_ns;
    clean *= 1 - sample.mark_chance;
  }
  return {.wait_ns = static_cast<float>(wait), .mark_chance = static_cast<float>(1 - clean)};
}

// The probes of the window that ends now, all of which the queues of their time hold up.
control::PathObservation Simulation::ObservePath(int n, const Peer& peer, int slot, int64_t now_ns) {
  Tree::Route links{};
  const int hops = tree_.Links(n, peer.to, peer.path[slot], links);
  control::PathObservation path{.slot = static_cast<uint8_t>(slot), .usable = slot < peer.known, .base_ns = kBaseNs};
  // Traces see hops up to max_ttl; the first is this NIC's own link.
  for (int i = 1; i + 1 < std::min(hops, spec_.probe.max_ttl + 1); ++i) {
    path.links.push_back(static_cast<uint64_t>(links[i]) + 1);
  }
  const auto window_ns = static_cast<int64_t>(spec_.window_s * 1e9);
  const int64_t phase_ns = nics_[n].phase_ns;
  const int64_t from = (now_ns - window_ns - phase_ns) / probe_ns_, to = (now_ns - phase_ns) / probe_ns_;
  std::vector<double> waits;
  for (int64_t round = from; round < to; ++round) {
    const int64_t t_ns = (round + 1) * probe_ns_ + phase_ns;
    const LinkModel::Sample probe = Probe(links, hops, t_ns);
    waits.push_back(probe.wait_ns);
    if (!spec_.marks) continue;
    ++path.ecn_samples;
    path.marked += probe.mark_chance > 0 && Uniform() < probe.mark_chance;
  }
  path.queue_samples = static_cast<int>(waits.size());
  if (waits.empty()) return path;
  std::sort(waits.begin(), waits.end());
  waits.resize(waits.size() - waits.size() / 20);  // as the agent does
  path.queue_ns = std::accumulate(waits.begin(), waits.end(), 0.0) / static_cast<double>(waits.size());
  return path;
}

// One probe: a pair that shares its budget has no more time before the move.
control::FreshLook Simulation::LookAgain(int n, const Peer& peer, int slot, int64_t now_ns) {
  Tree::Route links{};
  const int hops = tree_.Links(n, peer.to, peer.path[slot], links);
  return {.slot = static_cast<uint8_t>(slot),
          .usable = slot < peer.known,
          .samples = 1,
          .queue_ns = Probe(links, hops, now_ns + kLastLookNs / 2).wait_ns,
          .base_ns = kBaseNs};
}

// Both candidates are probed once more, and the rule is told with the next window.
control::Move Simulation::LastLook(int n, const control::Move& move, int64_t now_ns) {
  if (move.second == kSlotNone) return move;
  Nic& nic = nics_[n];
  const Peer& peer = nic.peers[flows_[move.flow.dqpn].peer];
  const control::Reprobe seen{
      .pair = move.pair,
      .flow = move.flow,
      .stays = true,
      .candidates = {LookAgain(n, peer, move.to, now_ns), LookAgain(n, peer, move.second, now_ns)}};
  nic.reprobed.push_back(seen);
  const control::ContentionRules& rules = control::RulesOf(*nic.state);
  return control::SettledMove(rules, move, seen, control::Settle(rules, seen));
}

control::FlowObservation Simulation::ObserveFlow(int f) {
  const Flow& flow = flows_[f];
  const RoutedFlow& routed = routed_[f];
  const double bps = routed.rate * spec_.link.bps;
  double marked = 0;
  for (int i = 1; i < routed.hops; ++i) marked += model_.Of(wanted_[routed.links[i]]).mark_share;
  const double per_cnp = bps / spec_.link.packet_bits * spec_.link.cnp_interval_s;  // packets
  const double cnps = spec_.window_s / spec_.link.cnp_interval_s * (1 - std::exp(-marked * per_cnp));
  return {.key = {Address(flow.nic), Address(nics_[flow.nic].peers[flow.peer].to), static_cast<uint32_t>(f)},
          .slot = static_cast<uint8_t>(flow.slot),
          .bytes = static_cast<uint64_t>(bps / 8 * spec_.window_s),
          .cnps = static_cast<uint64_t>(cnps + Uniform()),
          .locked = flow.wanted >= 0};
}

control::Observation Simulation::Observe(int n, int64_t now_ns) {
  const Nic& nic = nics_[n];
  control::Observation seen{.now_ns = now_ns, .window_ns = static_cast<int64_t>(spec_.window_s * 1e9), .pairs = {}};
  if (spec_.port_rate) seen.line_rate_bps = spec_.link.bps;
  for (const Peer& peer : nic.peers) {
    control::PairObservation pair{
        .pair = {Address(n), Address(peer.to)}, .table_valid = true, .paths = {}, .flows = {}};
    for (int s = 0; s < kSlots; ++s) {
      if (peer.path[s] != kNoPath) pair.paths.push_back(ObservePath(n, peer, s, now_ns));
    }
    seen.pairs.push_back(std::move(pair));
  }
  for (const int f : nic.flows) seen.pairs[flows_[f].peer].flows.push_back(ObserveFlow(f));
  return seen;
}

void Simulation::Decide(int n, int64_t now_ns, WindowResult& out) {
  Nic& nic = nics_[n];
  for (const int f : nic.flows) {  // a pending move finds its moment sooner or later
    if (flows_[f].wanted < 0 || Uniform() > 0.5) continue;
    Place(f, std::exchange(flows_[f].wanted, -1));
  }
  control::Observation seen = Observe(n, now_ns);
  seen.reprobed = std::exchange(nic.reprobed, {});
  const control::Decision decision = control::DecideMoves(seen, *nic.state);
  for (const control::Move& decided : decision.moves) {
    const control::Move move = LastLook(n, decided, now_ns);
    const auto f = static_cast<int>(move.flow.dqpn);
    ++out.moves;
    out.undone += nic.peers[flows_[f].peer].path[move.to] == flows_[f].left;
    if (move.force) {
      Place(f, move.to);
    } else {
      flows_[f].wanted = move.to;
    }
  }
  for (const control::Finding& finding : decision.findings) {
    out.in_vain += finding.kind == control::Finding::Kind::kMoveBroughtNothing;
  }
}

FabricSimResult Simulation::Run() {
  FabricSimResult result{.nics = tree_.nics,
                         .flows = static_cast<int>(flows_.size()),
                         .probe_interval_s = static_cast<double>(probe_ns_) / 1e9,
                         .windows = {},
                         .window_s = spec_.window_s};
  std::vector<int> hashed;
  for (const Flow& flow : flows_) {
    const int all = tree_.Paths(flow.nic, nics_[flow.nic].peers[flow.peer].to);
    hashed.push_back(static_cast<int>(random_() % static_cast<uint64_t>(all)));
  }
  for (int f = 0; f < result.flows; ++f) Put(f, hashed[f]);
  Share();
  result.hashed = Measure();
  result.central = Central();
  Begin(hashed);
  result.windows.push_back({.rates = Measure()});
  const int windows = spec_.steer ? static_cast<int>(spec_.seconds / spec_.window_s) : 0;
  for (int w = 1; w <= windows; ++w) {
    WindowResult out;
    std::fill(joined_.begin(), joined_.end(), 0);
    for (int phase = 0; phase < spec_.phases; ++phase) {
      const double t = (w + static_cast<double>(phase) / spec_.phases) * spec_.window_s;
      for (int n = phase; n < tree_.nics; n += spec_.phases) {
        if (!nics_[n].flows.empty()) Decide(n, static_cast<int64_t>(t * 1e9), out);
      }
      Share();
    }
    out.rates = Measure();
    out.herd = *std::max_element(joined_.begin(), joined_.end());
    result.windows.push_back(out);
  }
  return result;
}

}  // namespace

WindowResult FabricSimResult::Sum(double from_s, double to_s) const {
  WindowResult sum;
  for (size_t w = 0; w < windows.size(); ++w) {
    const double t = static_cast<double>(w) * window_s;
    if (t < from_s || t >= to_s) continue;
    sum.moves += windows[w].moves;
    sum.undone += windows[w].undone;
    sum.in_vain += windows[w].in_vain;
    sum.herd = std::max(sum.herd, windows[w].herd);
  }
  return sum;
}

double FabricSimResult::ReachedS(double mean) const {
  for (size_t w = 0; w < windows.size(); ++w) {
    if (windows[w].rates.mean >= mean) return static_cast<double>(w) * window_s;
  }
  return -1;
}

LinkSpec LinkOf(const FabricSimSpec& spec) {
  LinkSpec link = spec.link;
  link.sender_bps = link.bps / spec.flows_per_nic;
  return link;
}

FabricSimResult SimulateFabric(const FabricSimSpec& spec, const LinkModel& links) {
  return Simulation(spec, links).Run();
}

}  // namespace cw::sim
