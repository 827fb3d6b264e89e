// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fabric_sim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <queue>
#include <random>

#include "userspace/control/contention.h"
#include "userspace/probe/cadence.h"

namespace cw::sim {
namespace {

constexpr int kMaxHops = 6;
constexpr double kBaseNs = 4000;
constexpr int64_t kAnswerNs = 2'000'000;  // as the prober waits before it looks at a round's answers
constexpr double kProbeBits = 150 * 8;

// Links by number: six groups of as many as there are NICs, up and down for hosts, leaves and aggregation switches.
struct Tree {
  explicit Tree(int ports) : half(ports / 2), nics(ports * half * half) {}
  int half;
  int nics;

  int Links() const { return 6 * nics; }
  int Pod(int nic) const { return nic / (half * half); }
  int Leaf(int nic) const { return nic / half; }  // numbered through all pods
  // Paths between two NICs; 1 under one leaf.
  int Paths(int a, int b) const {
    if (Leaf(a) == Leaf(b)) return 1;
    return Pod(a) == Pod(b) ? half : half * half;
  }
  // Links of path `p`; returns their number.
  int Route(int a, int b, int p, std::array<int, kMaxHops>& links) const {
    int n = 0;
    links[n++] = a;
    if (Leaf(a) != Leaf(b)) {
      const int agg = p % half, core = p / half;
      links[n++] = 2 * nics + Leaf(a) * half + agg;
      if (Pod(a) != Pod(b)) {
        links[n++] = 4 * nics + (Pod(a) * half + agg) * half + core;
        links[n++] = 5 * nics + (Pod(b) * half + agg) * half + core;
      }
      links[n++] = 3 * nics + Leaf(b) * half + agg;
    }
    links[n++] = nics + b;
    return n;
  }
};

struct Flow {
  int nic = 0;
  int slot = 0;
  int wanted = -1;  // pending move
  int hops = 0;
  std::array<int, kMaxHops> links{};
  double rate = 0;        // share of a link
  bool squeezed = false;  // below what its NIC could give it
};

struct Nic {
  int to = -1;
  std::vector<uint16_t> paths;  // by slot
  std::vector<int> flows;
  std::unique_ptr<control::ContentionState> state;
  double bytes_carried = 0;
};

class Simulation {
 public:
  explicit Simulation(const FabricSimSpec& spec);
  FabricSimResult Run();

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Normal() { return std::normal_distribution<double>(0, 1)(random_); }
  void Place(Flow& flow, int slot);
  void Share();
  double QueueNs(int link) const;
  control::Observation Observe(int nic, int64_t now_ns);
  void Decide(int nic, int64_t now_ns, WindowResult& out);
  void Measure(WindowResult& out) const;
  static Addr Address(int nic) { return Addr::FromV4(0x0a000000u + static_cast<uint32_t>(nic)); }

  const FabricSimSpec spec_;
  const Tree tree_;
  std::mt19937_64 random_;
  std::vector<Nic> nics_;
  std::vector<Flow> flows_;
  // Per link, from the last sharing.
  std::vector<float> load_;
  std::vector<int> bottlenecked_;  // flows that this link holds back
  std::vector<int> joined_;        // flows that came in this window
  double samples_ = 0;             // probes per path and window
};

Simulation::Simulation(const FabricSimSpec& spec)
    : spec_(spec),
      tree_(spec.ports),
      random_(spec.seed),
      nics_(tree_.nics),
      load_(tree_.Links()),
      bottlenecked_(tree_.Links()),
      joined_(tree_.Links()) {
  std::vector<int> senders(tree_.nics);
  std::iota(senders.begin(), senders.end(), 0);
  std::shuffle(senders.begin(), senders.end(), random_);
  senders.resize(std::max<size_t>(2, static_cast<size_t>(spec.sending * tree_.nics)));
  for (size_t i = 0; i < senders.size(); ++i) {
    Nic& nic = nics_[senders[i]];
    nic.to = senders[(i + 1) % senders.size()];  // a cycle: each is the target of one
    const int all = tree_.Paths(senders[i], nic.to);
    std::vector<uint16_t>& paths = nic.paths;
    while (static_cast<int>(paths.size()) < std::min(all, spec.slots)) {
      const auto p = static_cast<uint16_t>(random_() % all);
      if (std::find(paths.begin(), paths.end(), p) == paths.end()) paths.push_back(p);
    }
    nic.state = std::make_unique<control::ContentionState>(control::ContentionRules(), random_());
    for (int f = 0; f < spec.flows_per_nic; ++f) {
      nic.flows.push_back(static_cast<int>(flows_.size()));
      flows_.push_back({.nic = senders[i]});
      Place(flows_.back(), static_cast<int>(random_() % paths.size()));
    }
  }
  std::fill(joined_.begin(), joined_.end(), 0);
  probe::Cadence cadence({.budget_pps = spec.budget_pps});
  cadence.SetPair(0, static_cast<uint32_t>(spec.slots), 0);
  cadence.SetActive(0, true, 0);
  samples_ = std::max(1.0, spec.window_s * 1e9 / static_cast<double>(cadence.IntervalNs(0)));
}

void Simulation::Place(Flow& flow, int slot) {
  const Nic& nic = nics_[flow.nic];
  flow.slot = slot;
  flow.hops = tree_.Route(flow.nic, nic.to, nic.paths[slot], flow.links);
  for (int i = 0; i < flow.hops; ++i) ++joined_[flow.links[i]];
}

// Max-min: the link with the least share per flow is filled first, and its flows are fixed.
void Simulation::Share() {
  const int links = tree_.Links();
  std::vector<int> count(links), start(links + 1);
  for (const Flow& f : flows_) {
    for (int i = 0; i < f.hops; ++i) ++count[f.links[i]];
  }
  std::partial_sum(count.begin(), count.end(), start.begin() + 1);
  std::vector<int> at(start.begin(), start.end() - 1), members(start.back());
  for (size_t f = 0; f < flows_.size(); ++f) {
    flows_[f].rate = -1;
    for (int i = 0; i < flows_[f].hops; ++i) members[at[flows_[f].links[i]]++] = static_cast<int>(f);
  }
  std::vector<double> left(links, 1.0);
  std::fill(bottlenecked_.begin(), bottlenecked_.end(), 0);
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least;
  for (int l = 0; l < links; ++l) {
    if (count[l] > 0) least.push({left[l] / count[l], l});
  }
  while (!least.empty()) {
    const auto [share, link] = least.top();
    least.pop();
    if (count[link] == 0) continue;
    const double now = left[link] / count[link];
    if (now > share * (1 + 1e-9)) {  // others on it were fixed meanwhile
      least.push({now, link});
      continue;
    }
    bottlenecked_[link] = count[link];
    for (int m = start[link]; m < start[link + 1]; ++m) {
      Flow& flow = flows_[members[m]];
      if (flow.rate >= 0) continue;
      flow.rate = now;
      flow.squeezed = link >= tree_.nics;
      for (int i = 0; i < flow.hops; ++i) {
        left[flow.links[i]] -= now;
        --count[flow.links[i]];
      }
    }
  }
  for (int l = 0; l < links; ++l) load_[l] = static_cast<float>(1 - left[l]);
}

// ECN holds a busy link at one load whatever the number of flows; its queue grows with their number.
double Simulation::QueueNs(int link) const {
  const double packet_ns = spec_.packet_bits / spec_.link_bps * 1e9;
  if (bottlenecked_[link] > 1) return packet_ns * 100 * bottlenecked_[link];
  const double load = std::min<double>(load_[link], 0.97);
  return packet_ns * 0.5 * load / (1 - load);
}

control::Observation Simulation::Observe(int n, int64_t now_ns) {
  Nic& nic = nics_[n];
  control::Observation seen{.now_ns = now_ns, .window_ns = static_cast<int64_t>(spec_.window_s * 1e9)};
  control::PairObservation pair{.pair = {Address(n), Address(nic.to)}, .table_valid = true};
  std::array<int, kMaxHops> links{};
  for (size_t s = 0; s < nic.paths.size(); ++s) {
    const int hops = tree_.Route(n, nic.to, nic.paths[s], links);
    control::PathObservation path{.slot = static_cast<uint8_t>(s), .usable = true, .base_ns = kBaseNs};
    path.queue_samples = static_cast<int>(samples_);
    for (int i = 1; i < hops; ++i) {  // behind its own link
      path.queue_ns += QueueNs(links[i]);
      path.links.push_back(static_cast<uint64_t>(links[i]) + 1);
    }
    path.queue_ns =
        std::max(0.0, path.queue_ns * (1 + 0.5 * Normal() / std::sqrt(samples_)) + 200 * std::fabs(Normal()));
    pair.paths.push_back(std::move(path));
  }
  for (const int f : nic.flows) {
    const Flow& flow = flows_[f];
    const double bytes = flow.rate * spec_.link_bps / 8 * spec_.window_s;
    pair.flows.push_back({.key = {Address(n), Address(nic.to), static_cast<uint32_t>(f)},
                          .slot = static_cast<uint8_t>(flow.slot),
                          .bytes = static_cast<uint64_t>(bytes),
                          .cnps = flow.squeezed && flow.rate < 0.97 / spec_.flows_per_nic ? 10u : 0u,
                          .locked = flow.wanted >= 0});
  }
  seen.pairs.push_back(std::move(pair));
  return seen;
}

void Simulation::Decide(int n, int64_t now_ns, WindowResult& out) {
  Nic& nic = nics_[n];
  for (const int f : nic.flows) {  // a pending move finds its idle moment sooner or later
    Flow& flow = flows_[f];
    if (flow.wanted < 0 || Uniform() > 0.5) continue;
    Place(flow, flow.wanted);
    flow.wanted = -1;
  }
  for (const control::Move& move : control::DecideMoves(Observe(n, now_ns), *nic.state).moves) {
    Flow& flow = flows_[move.flow.dqpn];
    ++out.moves;
    if (move.force) {
      Place(flow, move.to);
    } else {
      flow.wanted = move.to;
    }
  }
}

void Simulation::Measure(WindowResult& out) const {
  std::vector<double> rates;
  rates.reserve(flows_.size());
  for (const Flow& f : flows_) rates.push_back(f.rate * spec_.flows_per_nic);
  std::sort(rates.begin(), rates.end());
  out.mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  out.p1 = rates[rates.size() / 100];
  out.least = rates[0];
  out.herd = *std::max_element(joined_.begin(), joined_.end());
}

FabricSimResult Simulation::Run() {
  FabricSimResult result{.nics = tree_.nics, .flows = static_cast<int>(flows_.size())};
  result.probes_per_s = samples_ / spec_.window_s * spec_.slots;
  result.probe_share = result.probes_per_s * kProbeBits / spec_.link_bps;
  Share();
  WindowResult first;
  Measure(first);
  result.windows.push_back(first);
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
    Measure(out);
    result.windows.push_back(out);
  }
  return result;
}

}  // namespace

int FabricSimResult::Moves() const {
  int moves = 0;
  for (const WindowResult& w : windows) moves += w.moves;
  return moves;
}

double FabricSimResult::LateMovesPerFlowS(double window_s) const {
  const size_t from = windows.size() - windows.size() / 4;
  if (from >= windows.size()) return 0;
  int moves = 0;
  for (size_t w = from; w < windows.size(); ++w) moves += windows[w].moves;
  return moves / (static_cast<double>(windows.size() - from) * window_s) / flows;
}

double FabricSimResult::SettledS(double window_s) const {
  const size_t from = windows.size() - std::max<size_t>(1, windows.size() / 4);
  double last = 0;
  for (size_t w = from; w < windows.size(); ++w) last += windows[w].mean / static_cast<double>(windows.size() - from);
  size_t settled = from;
  while (settled > 0 && std::fabs(windows[settled - 1].mean - last) <= 0.01 * last) --settled;
  return static_cast<double>(settled) * window_s;
}

FabricSimResult SimulateFabric(const FabricSimSpec& spec) { return Simulation(spec).Run(); }

RecoveryResult SimulateRecovery(const RecoverySpec& spec) {
  std::mt19937_64 random(spec.seed);
  probe::Cadence cadence({.budget_pps = spec.budget_pps});
  for (int p = 0; p < spec.active_peers; ++p) {
    cadence.SetPair(static_cast<uint32_t>(p), static_cast<uint32_t>(spec.slots), 0);
    cadence.SetActive(static_cast<uint32_t>(p), true, 0);
  }
  RecoveryResult out{.interval_s = static_cast<double>(cadence.IntervalNs(0)) / 1e9};
  std::vector<double> took;
  std::vector<uint32_t> due;
  int64_t now_ns = cadence.NextWakeNs();
  const auto interval_ns = static_cast<double>(cadence.IntervalNs(0));
  for (int i = 0; i < spec.faults; ++i) {
    const auto pair = static_cast<uint32_t>(random() % static_cast<uint64_t>(spec.active_peers));
    const int64_t cut_ns =
        now_ns + static_cast<int64_t>(std::uniform_real_distribution<double>(0, interval_ns)(random));
    int64_t look_ns = INT64_MAX;
    for (int missed = 0; missed < spec.misses; now_ns = std::min(cadence.NextWakeNs(), look_ns)) {
      cadence.TakeDue(now_ns, &due);
      if (look_ns <= now_ns) {
        cadence.SetDoubt(pair, true, now_ns);
        look_ns = INT64_MAX;
      }
      if (now_ns < cut_ns || std::find(due.begin(), due.end(), pair) == due.end()) continue;
      if (missed == 0) look_ns = now_ns + kAnswerNs;
      if (++missed == spec.misses) took.push_back(static_cast<double>(now_ns - cut_ns) / 1e9 + spec.rtt_s);
    }
    cadence.SetDoubt(pair, false, now_ns);
  }
  std::sort(took.begin(), took.end());
  out.p50_s = took[took.size() / 2];
  out.p99_s = took[took.size() * 99 / 100];
  out.most_s = took.back();
  return out;
}

}  // namespace cw::sim
