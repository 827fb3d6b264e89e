// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_world.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/hops_id.h"

namespace cw::sim {
namespace {

using fleet::PathEvidence;
constexpr int64_t kBeginNs = 1'700'000'000'000'000'000, kSecondNs = 1'000'000'000;
constexpr int kPeriodS = 10, kLateS = 90, kTicks = 5;  // of a second
constexpr double kBackgroundLoss = 1e-5, kQueueSpike = 0.01;

}  // namespace

FleetWorld::FleetWorld(const FleetShape& shape, uint64_t seed) : shape_(shape), random_(seed) {
  Build();
  AddPaths();
  MakePicture();
  LookAtFabric();
}

int FleetWorld::Node(const std::string& name) {
  node_.push_back(name);
  up_.emplace_back();
  return static_cast<int>(node_.size()) - 1;
}

int FleetWorld::AddEdge(int from, int to, Addr port) {
  const int e = static_cast<int>(edge_.size());
  edge_.push_back({.from = from, .to = to, .port = port});
  edge_between_[{from, to}] = e;
  return e;
}

void FleetWorld::BothWays(int a, int b) {
  AddEdge(a, b, Addr::FromV4(next_address_++));
  AddEdge(b, a, Addr::FromV4(next_address_++));
  up_[static_cast<size_t>(a)].push_back(b);
}

void FleetWorld::Build() {
  std::vector<std::vector<int>> leaves;  // by pod and group, by rail
  std::vector<int> cores;
  const int planes = shape_.planes ? shape_.rails : 1, all_spines = planes * shape_.spines;
  if (shape_.pods > 1) {
    for (int c = 0; c < all_spines * shape_.cores; ++c) cores.push_back(Node(absl::StrCat("core", c)));
  }
  for (int p = 0; p < shape_.pods; ++p) {
    std::vector<int> spines;
    for (int s = 0; s < all_spines; ++s) spines.push_back(Node(absl::StrCat("pod", p, "-spine", s)));
    for (int s = 0; s < all_spines && !cores.empty(); ++s) {
      for (int c = 0; c < shape_.cores; ++c)
        BothWays(spines[static_cast<size_t>(s)], cores[static_cast<size_t>(s * shape_.cores + c)]);
    }
    for (int g = 0; g < shape_.groups; ++g) {
      leaves.emplace_back();
      for (int r = 0; r < shape_.rails; ++r) {
        leaves.back().push_back(Node(absl::StrCat("pod", p, "-g", g, "-leaf", r)));
        for (int s = 0; s < all_spines; ++s) {
          if (planes == 1 || s / shape_.spines == r) BothWays(leaves.back().back(), spines[static_cast<size_t>(s)]);
        }
      }
    }
  }
  switches_ = static_cast<int>(node_.size());
  uint32_t address = 0x0a000001;
  for (const std::vector<int>& group : leaves) {
    for (int h = 0; h < shape_.hosts; ++h) {
      Host host{.name = absl::StrCat("h", host_.size())};
      for (int r = 0; r < shape_.rails; ++r) {
        const Addr own = Addr::FromV4(address++);
        const int node = Node(absl::StrCat("nic", nic_.size()));
        const int leaf = group[static_cast<size_t>(r)];
        host.nics.push_back(static_cast<int>(nic_.size()));
        nic_.push_back({.host = static_cast<int>(host_.size()),
                        .rail = r,
                        .leaf = leaf,
                        .up = AddEdge(node, leaf, Addr::FromV4(next_address_++)),
                        .down = AddEdge(leaf, node, own),
                        .address = own});
      }
      host.missing = Chance() < shape_.missing;
      host.late = !host.missing && Chance() < shape_.late;
      host_.push_back(std::move(host));
    }
  }
  if (shape_.liar) {
    Host& liar = host_[static_cast<size_t>(Random(static_cast<int>(host_.size())))];
    liar.liar = !liar.missing && !liar.late;
  }
}

// Of switches, both leaves included; a few, by chance.
std::vector<std::vector<int>> FleetWorld::Ways(int from, int to) {
  if (from == to) return {{from}};
  std::vector<std::vector<int>> ways;
  for (const int up : up_[static_cast<size_t>(from)]) {
    if (edge_between_.contains({up, to})) ways.push_back({from, up, to});
    if (edge_between_.contains({up, to})) continue;
    for (const int core : up_[static_cast<size_t>(up)]) {
      for (const int down : up_[static_cast<size_t>(to)]) {
        if (edge_between_.contains({core, down})) ways.push_back({from, up, core, down, to});
      }
    }
  }
  std::shuffle(ways.begin(), ways.end(), random_);
  if (ways.size() > static_cast<size_t>(shape_.ways)) ways.resize(static_cast<size_t>(shape_.ways));
  return ways;
}

void FleetWorld::AddPaths() {
  std::vector<std::vector<int>> by_rail(static_cast<size_t>(shape_.rails));
  for (size_t n = 0; n < nic_.size(); ++n) by_rail[static_cast<size_t>(nic_[n].rail)].push_back(static_cast<int>(n));
  for (Host& host : host_) {
    host.first = path_.size();
    for (const int from : host.nics) {
      const std::vector<int>& rail = by_rail[static_cast<size_t>(nic_[static_cast<size_t>(from)].rail)];
      std::set<int> peers;
      for (int tries = 0; tries < 4 * shape_.peers && static_cast<int>(peers.size()) < shape_.peers; ++tries) {
        const int to = rail[static_cast<size_t>(Random(static_cast<int>(rail.size())))];
        if (nic_[static_cast<size_t>(to)].host != nic_[static_cast<size_t>(from)].host) peers.insert(to);
      }
      for (const int to : peers) {
        const Nic &a = nic_[static_cast<size_t>(from)], &b = nic_[static_cast<size_t>(to)];
        for (const std::vector<int>& way : Ways(a.leaf, b.leaf)) {
          Path path{.from = from, .to = to, .edges = {a.up}};
          for (size_t i = 1; i < way.size(); ++i) path.edges.push_back(edge_between_.at({way[i - 1], way[i]}));
          path.edges.push_back(b.down);
          path_.push_back(std::move(path));
        }
      }
    }
    host.last = path_.size();
    if (host.missing || host.late) continue;
    for (size_t i = host.first; i < host.last; ++i) {
      for (const int e : path_[i].edges) {
        std::set<int>& seen = edge_[static_cast<size_t>(e)].seen_by;
        if (seen.size() < 4) seen.insert(nic_[static_cast<size_t>(path_[i].from)].host);
      }
    }
  }
}

void FleetWorld::MakePicture() {
  picture_.now_ns = kBeginNs;
  for (int s = 0; s < switches_; ++s) {
    fleet::PlannedSwitch planned{.name = node_[static_cast<size_t>(s)]};
    for (const Edge& e : edge_) {
      if (e.to == s) planned.addresses.push_back(e.port);
    }
    plan_.switches.push_back(planned);
  }
  for (const Edge& e : edge_) {
    if (e.from < switches_ && e.to < switches_) plan_.cables.push_back({node_[static_cast<size_t>(e.from)], e.port});
  }
  for (Host& host : host_) {
    host.told_s = -Random(kPeriodS);
    if (host.missing) continue;
    host.place = static_cast<int>(picture_.hosts.size());
    fleet::HostEvidence told{.name = host.name, .connected = true, .last_seen_ns = kBeginNs, .newest_ns = kBeginNs};
    told.clock_known = told.clock_synced = true;
    for (const int n : host.nics)
      told.nics.push_back({.name = absl::StrCat("eth", nic_[static_cast<size_t>(n)].rail),
                           .address = nic_[static_cast<size_t>(n)].address,
                           .rail = absl::StrCat("rail", nic_[static_cast<size_t>(n)].rail),
                           .mtu = 9000,
                           .roce_mtu = 4096,
                           .rate_bps = 4e11});
    picture_.hosts.push_back(std::move(told));
    for (size_t i = host.first; i < host.last; ++i) {
      Path& path = path_[i];
      path.evidence = picture_.paths.size();
      picture_.paths.push_back({.host = static_cast<uint32_t>(host.place),
                                .source = nic_[static_cast<size_t>(path.from)].address,
                                .destination = nic_[static_cast<size_t>(path.to)].address,
                                .udp_port = static_cast<uint16_t>(1000 + i - host.first),
                                .state = PathEvidence::State::kNoWord,
                                .base_ns = 5000,
                                .time_ns = 0});
    }
  }
}

// As the traces have it now.
void FleetWorld::LookAtFabric() {
  std::vector<fleet::Trace> traces;
  for (const Host& host : host_) {
    for (size_t i = host.first; i < host.last && !host.missing; ++i) {
      Path& path = path_[i];
      path.hops.clear();
      for (size_t e = 0; e + 1 < path.edges.size(); ++e)
        path.hops.push_back(edge_[static_cast<size_t>(path.edges[e])].port);
      PathEvidence& told = picture_.paths[path.evidence];
      told.hops = &path.hops;
      told.hops_id = HopsId(path.hops);
      traces.push_back({told.source, told.destination, path.hops});
    }
  }
  topology_ = fleet::BuildTopology(traces, plan_);
  wiring_ = fleet::CompareWiring(topology_, plan_);
  components_ = fleet::Components(topology_, picture_.hosts);
  picture_.topology = &topology_;
  picture_.wiring = &wiring_;
  ++picture_.fabric;
}

void FleetWorld::Tell(const std::string& host, const std::string& type, const std::string& peer, bool alert,
                      std::vector<std::pair<std::string, std::string>> evidence) {
  picture_.events.push_back({.host = host,
                             .type = type,
                             .peer = peer,
                             .flow = type == "cause" ? "flow to " + peer : "",
                             .run = 1,
                             .time_ns = picture_.now_ns,
                             .alert = alert,
                             .evidence = std::move(evidence)});
}

bool FleetWorld::IsOfLate(const fleet::Finding& finding) const {
  return finding.cause == fleet::Cause::kReportsRefused &&
         std::any_of(host_.begin(), host_.end(),
                     [&](const Host& host) { return host.late && finding.scope == "host " + host.name; });
}

bool FleetWorld::IsOfLiar(const std::string& scope) const {
  return std::any_of(host_.begin(), host_.end(), [&](const Host& host) {
    if (!host.liar) return false;
    if (scope == absl::StrCat("host ", host.name)) return true;
    return std::any_of(host.nics.begin(), host.nics.end(), [&](int nic) {
      const std::string address = nic_[static_cast<size_t>(nic)].address.ToString();
      return scope == "NIC " + address || absl::StartsWith(scope, "link " + address + ">");
    });
  });
}

void FleetWorld::Lie(const Host& host) {
  const int mode = static_cast<int>((second_ / 40 + static_cast<int64_t>(host.first)) % 5);
  const int link = path_[host.first].edges[1];
  for (size_t i = host.first; i < host.last; ++i) {
    PathEvidence& told = picture_.paths[path_[i].evidence];
    const bool some = i % 3 == 0;
    const bool over = std::count(path_[i].edges.begin(), path_[i].edges.end(), link) > 0;
    if (mode == 0 || (mode == 1 && some) || (mode == 2 && over)) told.state = PathEvidence::State::kDead;
    if (mode == 3 && some) told.lost = static_cast<uint32_t>(told.sent * 0.05 * (1 + Random(6)));
  }
  if (mode == 4 && !picture_.events.empty()) return;
  for (int i = 0; mode == 4 && i < 4; ++i)
    Tell(host.name, "cause", absl::StrCat("h", i), false, {{"cause", "slow receiver"}});
}

// What it saw since it told last.
void FleetWorld::Hear(Host& host) {
  fleet::HostEvidence& told_of = picture_.hosts[static_cast<size_t>(host.place)];
  host.told_s = second_;
  host.hurry_tick = -1;
  told_of.last_seen_ns = picture_.now_ns;
  told_of.newest_ns = picture_.now_ns - (host.late ? kLateS * kSecondNs : 0);
  for (size_t i = host.first; i < host.last; ++i) {
    Path& path = path_[i];
    PathEvidence& told = picture_.paths[path.evidence];
    told.state = path.dead     ? PathEvidence::State::kDead
                 : path.paused ? PathEvidence::State::kPaused
                               : PathEvidence::State::kAlive;
    told.sent = path.sent;
    told.lost = path.lost;
    told.time_ns = told_of.newest_ns;
    told.queue_ns = Chance() < kQueueSpike ? 15'000 : 500;
    for (const int e : path.edges) told.queue_ns += edge_[static_cast<size_t>(e)].queue_ns * (0.7 + 0.6 * Chance());
    path.sent = path.lost = 0;
  }
  if (host.liar) Lie(host);
}

void FleetWorld::LookAtPaths(Host& host, bool whole) {
  bool news = false;
  for (size_t i = host.first; i < host.last; ++i) {
    Path& path = path_[i];
    double through = 1 - kBackgroundLoss;
    for (const int e : path.edges) through *= 1 - edge_[static_cast<size_t>(e)].loss;
    // No answer leaves or enters by a NIC that is dead in one direction.
    const Nic &a = nic_[static_cast<size_t>(path.from)], &b = nic_[static_cast<size_t>(path.to)];
    const bool no_answer = edge_[static_cast<size_t>(a.down)].loss >= 1 || edge_[static_cast<size_t>(b.up)].loss >= 1;
    const bool dead = through <= 0 || no_answer;
    // Answers come back on the class, too: what is held up at a NIC is held up both ways.
    bool paused = edge_[static_cast<size_t>(a.down)].paused || edge_[static_cast<size_t>(b.up)].paused;
    for (const int e : path.edges) paused |= edge_[static_cast<size_t>(e)].paused;
    news |= dead != path.dead || paused != path.paused;
    path.dead = dead;
    path.paused = paused;
    if (!whole) continue;
    const auto probes = static_cast<uint32_t>(shape_.probes_per_s);
    path.sent += probes;
    path.lost += dead || paused ? probes : std::binomial_distribution<uint32_t>(probes, 1 - through)(random_);
  }
  if (!news || host.hurry_tick >= 0) return;
  // Some have to gather words, some told just now.
  const int64_t phase = host.told_s >= second_ - 1 ? Random(kTicks) : Random(2);
  host.hurry_tick = tick_ + 1 + phase;
}

bool FleetWorld::Tick() {
  ++tick_;
  picture_.now_ns += kSecondNs / kTicks;
  picture_.events.clear();
  const bool whole = tick_ % kTicks == 0;
  second_ += whole;
  if (whole && active_ && fault_.kind == FleetFault::Kind::kFlapping) {
    const int64_t phase = second_ % 24;
    for (const int e : fault_.edges) edge_[static_cast<size_t>(e)].loss = phase < 5 ? 1 : 0;
  }
  const bool look = whole || changed_;
  changed_ = false;
  bool told = whole;
  for (Host& host : host_) {
    if (host.missing) continue;
    if (host.silent && second_ >= host.drop_s) picture_.hosts[static_cast<size_t>(host.place)].connected = false;
    if (look) LookAtPaths(host, whole);
    if (host.silent) continue;
    const bool hurry = host.hurry_tick >= 0 && tick_ >= host.hurry_tick;
    if (!hurry && !(whole && second_ - host.told_s >= kPeriodS)) continue;
    told |= hurry;
    Hear(host);
  }
  return told;
}

}  // namespace cw::sim
