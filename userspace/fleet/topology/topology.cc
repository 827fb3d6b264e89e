// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/topology.h"

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "userspace/fleet/topology/nic_places.h"

namespace cw::fleet {
namespace {

constexpr size_t kOutvoted = 4;  // hosts, from which on the others outvote one

// A step of a trace; of a hundred thousand traces nearly all take steps that others took.
struct StepOf {
  Addr from, to;
  bool first = false, last = false;  // of its trace
  bool operator==(const StepOf&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const StepOf& s) {
    return H::combine(std::move(h), s.from, s.to, s.first, s.last);
  }
};

// Who reports a step: a host, or more than one.
struct Witness {
  uint64_t host = 0;
  bool several = false;
};

// Addresses and who was seen beside whom.
struct Seen {
  std::map<Addr, std::set<Addr>> before, after;  // switch hops only
  std::map<Addr, std::set<Addr>> first, last;    // of NICs
  std::map<Addr, std::set<Addr>> first_of;       // NICs whose first hop it is
  std::set<Addr> hops;
  absl::flat_hash_map<StepOf, Witness> steps;
  uint64_t silent = 0;

  // False: it was known.
  bool Add(const StepOf& step, uint64_t host) {
    const auto [known, fresh] = steps.try_emplace(step, Witness{host});
    known->second.several = known->second.several || known->second.host != host;
    return fresh;
  }
};

uint64_t HostOf(const Trace& trace) { return trace.host != 0 ? trace.host : absl::HashOf(trace.source) | 1; }

Seen Look(absl::Span<const Trace> traces, const NicPlaces& places) {
  Seen seen;
  for (const Trace& trace : traces) {
    if (places.IsPast(trace)) continue;
    const bool end_holds = places.EndHolds(trace);
    const uint64_t host = HostOf(trace);
    for (size_t i = 0; i < trace.hops.size(); ++i) {
      const Addr& hop = trace.hops[i];
      if (hop.is_zero()) {
        ++seen.silent;
        continue;
      }
      const bool last = i + 1 == trace.hops.size() && end_holds;
      if (last && seen.Add({hop, trace.destination, false, true}, host)) seen.last[trace.destination].insert(hop);
      if (!seen.Add({i == 0 ? trace.source : trace.hops[i - 1], hop, i == 0, false}, host)) continue;
      seen.hops.insert(hop);
      if (i == 0) {
        seen.first[trace.source].insert(hop);
        seen.first_of[hop].insert(trace.source);
      } else if (!trace.hops[i - 1].is_zero() && trace.hops[i - 1] != hop) {
        seen.before[hop].insert(trace.hops[i - 1]);
        seen.after[trace.hops[i - 1]].insert(hop);
      }
    }
  }
  return seen;
}

// Evidence, and the hosts on whose word alone all of it rests.
class Evidence {
 public:
  void Add(const std::set<uint64_t>& rests_on) {
    if (!any_) {
      liars_ = rests_on;
    } else {
      std::erase_if(liars_, [&](uint64_t host) { return !rests_on.contains(host); });
    }
    any_ = true;
  }
  bool Holds(Split split) const { return any_ && (split == Split::kByOne || liars_.empty()); }

 private:
  bool any_ = false;
  std::set<uint64_t> liars_;
};

// Hosts that alone can have made up this step; none where it was not seen, or by several.
std::set<uint64_t> SoleWitness(const Seen& seen, const StepOf& step) {
  const auto known = seen.steps.find(step);
  if (known == seen.steps.end() || known->second.several) return {};
  return {known->second.host};
}

// Those that alone can have made up that some switch comes before it.
std::set<uint64_t> WhoAlonePutsASwitchBefore(const Seen& seen, const Addr& address, const std::set<Addr>& before) {
  std::set<uint64_t> hosts = SoleWitness(seen, {*before.begin(), address});
  for (const Addr& a : before) {
    const std::set<uint64_t> of = SoleWitness(seen, {a, address});
    std::erase_if(hosts, [&](uint64_t host) { return !of.contains(host); });
  }
  return hosts;
}

// The switch's own address, not a port's: nothing follows from what was before it.
bool IsOwn(const Seen& seen, const Addr& address, Split split) {
  const auto before = seen.before.find(address);
  if (before == seen.before.end()) return false;
  Evidence evidence;
  if (const auto nics = seen.first_of.find(address); nics != seen.first_of.end()) {
    const std::set<uint64_t> switch_before = WhoAlonePutsASwitchBefore(seen, address, before->second);
    for (const Addr& nic : nics->second) {
      std::set<uint64_t> rests_on = SoleWitness(seen, {nic, address, true, false});
      // Others see it where they end at this NIC.
      const auto end = seen.steps.find({address, nic, false, true});
      if (end != seen.steps.end() && (end->second.several || !rests_on.contains(end->second.host))) rests_on.clear();
      rests_on.insert(switch_before.begin(), switch_before.end());
      evidence.Add(rests_on);
      if (evidence.Holds(split)) return true;
    }
  }
  if (const auto after = seen.after.find(address); after != seen.after.end()) {
    for (const Addr& a : before->second) {
      if (!after->second.contains(a)) continue;
      std::set<uint64_t> rests_on = SoleWitness(seen, {a, address});
      rests_on.merge(SoleWitness(seen, {address, a}));
      evidence.Add(rests_on);
      if (evidence.Holds(split)) return true;
    }
  }
  return false;
}

// Sets of addresses that are one switch (union-find), each of at most one name of fleet.toml.
class Joiner {
 public:
  explicit Joiner(const FleetFile& fleet) {
    for (const PlannedSwitch& s : fleet.switches) {
      for (const Addr& a : s.addresses) {
        Add(a);
        name_[Root(a)] = s.name;
        if (a != s.addresses[0]) Join(s.addresses[0], a, "");
      }
    }
  }
  void Add(const Addr& a) { parent_.emplace(a, a); }
  Addr Root(const Addr& a) {
    Addr at = a;
    while (parent_.at(at) != at) at = parent_[at] = parent_.at(parent_.at(at));
    return at;
  }
  void Join(const Addr& a, const Addr& b, const std::string& why) {
    const Addr root = std::min(Root(a), Root(b)), other = std::max(Root(a), Root(b));
    if (root == other) return;
    const std::string name = Name(root), other_name = Name(other);
    if (!name.empty() && !other_name.empty() && name != other_name) {
      conflicts_.insert(absl::StrCat(std::min(name, other_name), " and ", std::max(name, other_name),
                                     " look like one switch: ", why));
      return;
    }
    parent_[other] = root;
    if (name.empty() && !other_name.empty()) name_[root] = other_name;
  }
  void JoinAll(const std::set<Addr>& addresses, const std::string& why) {
    for (const Addr& a : addresses) Join(*addresses.begin(), a, why);
  }
  std::string Name(const Addr& root) const {
    const auto it = name_.find(root);
    return it == name_.end() ? "" : it->second;
  }
  const std::map<Addr, Addr>& all() const { return parent_; }
  std::vector<std::string> conflicts() const { return {conflicts_.begin(), conflicts_.end()}; }

 private:
  std::map<Addr, Addr> parent_;
  std::map<Addr, std::string> name_;
  std::set<std::string> conflicts_;
};

void JoinByNeighbours(const Seen& seen, Split split, Joiner& joiner) {
  for (const Addr& hop : seen.hops) joiner.Add(hop);
  for (const auto& [hop, before] : seen.before) {
    if (!IsOwn(seen, hop, split)) joiner.JoinAll(before, absl::StrCat("both were seen just before ", hop.ToString()));
  }
  for (const auto& [nic, first] : seen.first) {
    if (first.size() > 1) continue;
    std::set<Addr> leaf = first;
    const auto last = seen.last.find(nic);
    if (last != seen.last.end()) leaf.insert(last->second.begin(), last->second.end());
    joiner.JoinAll(leaf, absl::StrCat("the NIC ", nic.ToString(), " is plugged into both"));
  }
}

void MakeSwitches(Joiner& joiner, const FleetFile& fleet, Topology& topology) {
  std::map<Addr, Switch> by_root;
  const std::map<Addr, Addr> all = joiner.all();
  for (const auto& [address, parent] : all) by_root[joiner.Root(address)].addresses.push_back(address);
  for (auto& [root, s] : by_root) {
    s.name = joiner.Name(root);
    s.named = !s.name.empty();
    if (!s.named) s.name = s.addresses[0].ToString();
    for (const PlannedSwitch& planned : fleet.switches) {
      if (s.named && planned.name == s.name) s.rack = planned.rack, s.rail = planned.rail;
    }
    topology.switches.push_back(s);
  }
  std::sort(topology.switches.begin(), topology.switches.end(), [](const Switch& a, const Switch& b) {
    return std::tie(a.name, a.addresses) < std::tie(b.name, b.addresses);
  });
  for (size_t i = 0; i < topology.switches.size(); ++i) {
    for (const Addr& a : topology.switches[i].addresses) topology.switch_of[a] = static_cast<int>(i);
  }
}

class LinkMaker {
 public:
  LinkMaker(const Topology& topology, const NicPlaces& places) : topology_(topology), places_(places) {}

  void Take(const Trace& trace) {
    if (trace.hops.empty() || places_.IsPast(trace)) return;
    const size_t ends = trace.hops.size() + (places_.EndHolds(trace) ? 1 : 0);
    for (size_t i = 0; i < ends; ++i) {
      const Addr from = i == 0 ? trace.source : trace.hops[i - 1];
      const Addr to = i == trace.hops.size() ? trace.destination : trace.hops[i];
      if (from.is_zero() || to.is_zero()) continue;  // beside a silent hop
      auto [known, fresh] = known_.try_emplace({from, to, i == 0, i == trace.hops.size()}, nullptr);
      if (!fresh) {
        if (known->second != nullptr) ++known->second->traces;
        continue;
      }
      const int from_switch = i == 0 ? -1 : topology_.switch_of.at(from);
      const int to_switch = i == trace.hops.size() ? -1 : topology_.switch_of.at(to);
      if (from_switch >= 0 && from_switch == to_switch) continue;  // a loop, or two switches that look like one
      TopologyLink& link = links_[{from_switch, i == 0 ? from : Addr{}, to_switch, to}];
      link.from = from_switch;
      link.to = to_switch;
      link.port = to;
      if (i == 0) link.from_nic = from;
      if (i == trace.hops.size()) link.to_nic = to;
      ++link.traces;
      known->second = &link;
      ids_[&link].insert({from, to});
    }
  }
  std::vector<TopologyLink> Links() {
    std::vector<TopologyLink> links;
    for (auto& [key, link] : links_) {
      const auto& ids = ids_[&link];
      link.ids.assign(ids.begin(), ids.end());
      links.push_back(link);
    }
    return links;
  }

 private:
  const Topology& topology_;
  const NicPlaces& places_;
  std::map<std::tuple<int, Addr, int, Addr>, TopologyLink> links_;
  std::map<const TopologyLink*, std::set<std::pair<Addr, Addr>>> ids_;
  absl::flat_hash_map<StepOf, TopologyLink*> known_;  // null: no link
};

// Of each switch those that a cable joins to it.
std::vector<std::set<int>> Beside(const Topology& topology) {
  std::vector<std::set<int>> beside(topology.switches.size());
  for (const TopologyLink& link : topology.links) {
    if (link.from < 0 || link.to < 0) continue;
    beside[static_cast<size_t>(link.from)].insert(link.to);
    beside[static_cast<size_t>(link.to)].insert(link.from);
  }
  return beside;
}

// Steps from the nearest NIC: in a tree of any number of tiers packets go up and down, never sideways.
void FindTiers(Topology& topology) {
  std::deque<int> next;
  for (const auto& [nic, leaf] : topology.leaf_of) {
    int& tier = topology.switches[static_cast<size_t>(leaf)].tier;
    if (tier == 0) next.push_back(leaf);
    tier = 1;
  }
  const std::vector<std::set<int>> beside = Beside(topology);
  for (; !next.empty(); next.pop_front()) {
    const int tier = topology.switches[static_cast<size_t>(next.front())].tier;
    for (const int other : beside[static_cast<size_t>(next.front())]) {
      Switch& s = topology.switches[static_cast<size_t>(other)];
      if (s.tier != 0) continue;
      s.tier = tier + 1;
      next.push_back(other);
    }
  }
}

// A way leads through what did not answer, too.
void JoinAcrossSilence(const Topology& topology, absl::Span<const Trace> traces, std::vector<std::set<int>>& beside) {
  for (const Trace& trace : traces) {
    int before = -1;
    bool silent = false;
    for (const Addr& hop : trace.hops) {
      silent |= hop.is_zero();
      if (hop.is_zero()) continue;
      const auto known = topology.switch_of.find(hop);
      if (known == topology.switch_of.end()) break;  // told by a NIC that was moved since
      const int now = known->second;
      if (silent && before >= 0 && before != now) {
        beside[static_cast<size_t>(before)].insert(now);
        beside[static_cast<size_t>(now)].insert(before);
      }
      before = now;
      silent = false;
    }
  }
}

// Switches that links join, over any number of others. Only a fabric that falls apart into several has planes.
void FindPlanes(Topology& topology, absl::Span<const Trace> traces) {
  const auto at = [&](int s) -> Switch& { return topology.switches[static_cast<size_t>(s)]; };
  std::vector<std::set<int>> beside = Beside(topology);
  JoinAcrossSilence(topology, traces, beside);
  int planes = 0;
  for (size_t first = 0; first < topology.switches.size(); ++first) {
    if (topology.switches[first].plane != 0) continue;
    ++planes;
    std::deque<int> next = {static_cast<int>(first)};
    at(next.front()).plane = planes;
    for (; !next.empty(); next.pop_front()) {
      for (const int other : beside[static_cast<size_t>(next.front())]) {
        if (at(other).plane != 0) continue;
        at(other).plane = planes;
        next.push_back(other);
      }
    }
  }
  if (planes > 1) return;
  for (Switch& s : topology.switches) s.plane = 0;
}

bool CanOutvote(absl::Span<const Trace> traces) {
  std::set<uint64_t> hosts;
  for (const Trace& trace : traces) {
    hosts.insert(HostOf(trace));
    if (hosts.size() >= kOutvoted) return true;
  }
  return false;
}

}  // namespace

Topology BuildTopology(absl::Span<const Trace> traces, const FleetFile& fleet, Split split) {
  NicPlaces places;
  return BuildTopology(traces, fleet, places, split);
}

Topology BuildTopology(absl::Span<const Trace> traces, const FleetFile& fleet, NicPlaces& places, Split split) {
  Topology topology;
  places.Learn(traces);
  const Seen seen = Look(traces, places);
  Joiner joiner(fleet);
  if (split == Split::kBySeveral && !CanOutvote(traces)) split = Split::kByOne;
  JoinByNeighbours(seen, split, joiner);
  topology.silent_hops = seen.silent;
  topology.conflicts = joiner.conflicts();
  MakeSwitches(joiner, fleet, topology);
  for (const auto& [nic, first] : seen.first) {
    if (first.size() == 1) topology.leaf_of[nic] = topology.switch_of.at(*first.begin());
  }
  LinkMaker links(topology, places);
  for (const Trace& trace : traces) links.Take(trace);
  topology.links = links.Links();
  FindTiers(topology);
  FindPlanes(topology, traces);
  return topology;
}

}  // namespace cw::fleet
