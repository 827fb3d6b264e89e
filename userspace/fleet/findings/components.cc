// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/components.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostNames = 1'000'000;  // hosts that make up ports fill nothing

void Sort(std::vector<int32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

std::string LinkScope(const TopologyLink& link) {
  return absl::StrCat("link ", link.ids.front().first.ToString(), ">", link.ids.front().second.ToString());
}

}  // namespace

int32_t Components::Add(Component component) {
  const auto number = static_cast<int32_t>(all_.size());
  by_scope_.emplace(component.scope, number);
  all_.push_back(std::move(component));
  return number;
}

Components::Components(const Topology& topology, const std::vector<HostEvidence>& hosts, LinkNames& names)
    : switch_of_(topology.switch_of), leaf_of_(topology.leaf_of) {
  for (const Switch& s : topology.switches) {
    switch_names_.push_back(s.name);
    tiers_.push_back(s.tier);
  }
  std::map<Addr, int> ends;  // a switch that answers with one address of its own has many links that end at it
  for (const TopologyLink& link : topology.links) ++ends[link.port];
  for (const TopologyLink& link : topology.links) {
    if (link.ids.empty()) continue;
    const bool at_nic = link.from < 0 || link.to < 0;
    std::string scope = LinkScope(link);
    if (!at_nic && ends[link.port] == 1 && (names.size() < kMostNames || names.contains(link.port)))
      scope = names.try_emplace(link.port, scope).first->second;
    const int32_t c = Add({.part = Part::kLink,
                           .scope = std::move(scope),
                           .links = {link.ids.front()},
                           .at_nic = at_nic,
                           .between = {link.from, link.to},
                           .nic = link.from < 0 ? link.from_nic : link.to_nic,
                           .own_port = ends[link.port] == 1});
    for (const LinkId& id : link.ids) link_of_[id] = c;
    if (!at_nic) to_port_[link.port] = c;
    if (!at_nic && !link_between_.emplace(std::pair(link.from, link.to), c).second)
      link_between_[{link.from, link.to}] = -1;
  }
  MarkSilentLeaves(topology);
  AddCables(topology);
  AddSwitches(topology);
  for (size_t h = 0; h < hosts.size(); ++h) {
    std::vector<int32_t> nics;
    for (const NicFact& nic : hosts[h].nics) {
      if (nic.address.is_zero() || nic_of_.contains(nic.address)) continue;  // the first who says so has it
      const int32_t c = NicAt(nic.address);
      all_[static_cast<size_t>(c)].host = static_cast<int32_t>(h);
      nics.push_back(c);
    }
    if (nics.size() < 2) continue;
    const int32_t host = Add({.part = Part::kHost,
                              .scope = absl::StrCat("host ", hosts[h].name),
                              .host = static_cast<int32_t>(h),
                              .inside = nics});
    for (const int32_t nic : nics) over_[nic].push_back(host);
  }
  NamePlaces(topology, hosts);
}

// A NIC behind several switches, none of which is known from its own traces, is behind one that answers none.
void Components::MarkSilentLeaves(const Topology& topology) {
  std::map<Addr, std::set<int>> before;
  std::set<Addr> own;
  for (const TopologyLink& link : topology.links) {
    if (link.to < 0 && link.from >= 0) before[link.to_nic].insert(link.from);
    if (link.from < 0) own.insert(link.from_nic);
  }
  for (const TopologyLink& link : topology.links) {
    if (link.ids.empty() || link.to >= 0 || link.from < 0) continue;
    if (own.contains(link.to_nic) || before[link.to_nic].size() < 2) continue;
    Component& c = all_[static_cast<size_t>(link_of_.at(link.ids[0]))];
    c.gap = true;
    leaf_of_.erase(link.to_nic);
  }
}

// By names: "link leaf0 > spine1 (10.0.0.1>10.1.0.2)", "NIC eth0 of h2 (10.0.1.10)".
void Components::NamePlaces(const Topology& topology, const std::vector<HostEvidence>& hosts) {
  std::map<Addr, std::string> nics;
  for (const HostEvidence& host : hosts) {
    host_names_.push_back(host.name);
    for (const NicFact& nic : host.nics) {
      if (!nic.address.is_zero()) nics.emplace(nic.address, absl::StrCat(nic.name, " of ", host.name));
    }
  }
  for (const auto& [address, name] : nics) {
    const int32_t c = FindScope(absl::StrCat("NIC ", address.ToString()));
    if (c >= 0) all_[static_cast<size_t>(c)].place = absl::StrCat("NIC ", name, " (", address.ToString(), ")");
  }
  const auto end = [&](int s, const Addr& nic) {
    if (s >= 0) return topology.switches[static_cast<size_t>(s)].name;
    const auto known = nics.find(nic);
    return known == nics.end() ? nic.ToString() : known->second;
  };
  for (const TopologyLink& link : topology.links) {
    if (link.ids.empty()) continue;
    Component& c = all_[static_cast<size_t>(link_of_.at(link.ids[0]))];
    c.place = absl::StrCat("link ", end(link.from, link.from_nic), " > ", end(link.to, link.to_nic), " (",
                           c.scope.substr(5), ")");
  }
}

std::vector<int32_t> Components::AtEnd(const Addr& nic) {
  std::vector<int32_t> need;
  Take(NicAt(nic), need);
  const int leaf = LeafOf(nic);
  const int32_t c = leaf < 0 ? -1 : FindScope("switch " + switch_names_[static_cast<size_t>(leaf)]);
  if (c >= 0) need.push_back(c);
  Sort(need);
  return need;
}

int32_t Components::CableOf(int32_t link) const {
  const auto over = over_.find(link);
  if (over == over_.end()) return -1;
  for (const int32_t c : over->second) {
    if (at(c).part == Part::kCable) return c;
  }
  return -1;
}

int32_t Components::WholeOf(int32_t c) const {
  if (at(c).part != Part::kLink) return c;
  const int32_t whole = at(c).at_nic ? FindScope(absl::StrCat("NIC ", at(c).nic.ToString())) : CableOf(c);
  return whole < 0 ? c : whole;
}

std::string Components::PlaceOf(const std::string& scope) const {
  const int32_t c = FindScope(scope);
  return c < 0 || at(c).place.empty() ? scope : at(c).place;
}

std::string Components::HostAt(int32_t c) const {
  const Component& component = at(c);
  int32_t host = component.host;
  if (component.at_nic) {
    const int32_t nic = FindScope(absl::StrCat("NIC ", component.nic.ToString()));
    host = nic < 0 ? -1 : at(nic).host;
  }
  return host < 0 ? "" : host_names_[static_cast<size_t>(host)];
}

// Two links between the same two switches, one each way, are one cable. Where several cables join two switches it is
// not known which is whose.
void Components::AddCables(const Topology& topology) {
  std::map<std::pair<int, int>, std::vector<const TopologyLink*>> between;
  for (const TopologyLink& link : topology.links) {
    if (link.from >= 0 && link.to >= 0 && !link.ids.empty()) between[{link.from, link.to}].push_back(&link);
  }
  for (const auto& [ends, there] : between) {
    const auto back = between.find({ends.second, ends.first});
    if (ends.first > ends.second || there.size() != 1 || back == between.end() || back->second.size() != 1) continue;
    const int32_t a = link_of_.at(there[0]->ids[0]), b = link_of_.at(back->second[0]->ids[0]);
    std::vector<LinkId> ids = {all_[static_cast<size_t>(a)].links[0], all_[static_cast<size_t>(b)].links[0]};
    std::sort(ids.begin(), ids.end());
    const auto name = [&](int s) { return topology.switches[static_cast<size_t>(s)].name; };
    const auto [first, last] = std::minmax({name(ends.first), name(ends.second)});
    const int32_t cable = Add({.part = Part::kCable,
                               .scope = absl::StrCat("cable ", first, " = ", last),
                               .links = std::move(ids),
                               .own_port = at(a).own_port && at(b).own_port,
                               .inside = {std::min(a, b), std::max(a, b)}});
    over_[a].push_back(cable);
    over_[b].push_back(cable);
  }
}

void Components::AddSwitches(const Topology& topology) {
  std::vector<int32_t> of(topology.switches.size());
  for (size_t s = 0; s < topology.switches.size(); ++s)
    of[s] = Add({.part = Part::kSwitch, .scope = absl::StrCat("switch ", topology.switches[s].name)});
  for (const TopologyLink& link : topology.links) {
    if (link.ids.empty()) continue;
    const int32_t c = link_of_.at(link.ids[0]);
    for (const int end : {link.from, link.to}) {
      if (end < 0) continue;
      const int32_t s = of[static_cast<size_t>(end)];
      std::vector<int32_t> inside = {c};
      // A cable is of the switch, too; and a leaf has its NICs.
      for (const int32_t over : over_[c]) {
        if (all_[static_cast<size_t>(over)].part == Part::kCable) inside.push_back(over);
      }
      if (all_[static_cast<size_t>(c)].at_nic) inside.push_back(NicAt(all_[static_cast<size_t>(c)].nic));
      std::vector<int32_t>& of_switch = all_[static_cast<size_t>(s)].inside;
      of_switch.insert(of_switch.end(), inside.begin(), inside.end());
    }
  }
  for (const TopologyLink& link : topology.links) {
    if (link.ids.empty()) continue;
    for (const int end : {link.from, link.to}) {
      if (end >= 0) over_[link_of_.at(link.ids[0])].push_back(of[static_cast<size_t>(end)]);
    }
  }
  for (Component& component : all_) Sort(component.inside);
  nic_of_.clear();  // hosts name them anew; the components stay and are found by their scope
}

int32_t Components::NicAt(Addr address) {
  const auto known = nic_of_.find(address);
  if (known != nic_of_.end()) return known->second;
  const std::string scope = absl::StrCat("NIC ", address.ToString());
  const int32_t found = FindScope(scope);
  const int32_t c = found >= 0 ? found : Add({.part = Part::kNic, .scope = scope, .nic = address});
  nic_of_.emplace(address, c);
  return c;
}

int32_t Components::FindScope(const std::string& scope) const {
  const auto it = by_scope_.find(scope);
  return it == by_scope_.end() ? -1 : it->second;
}

int32_t Components::LinkToPort(const Addr& port) const {
  const auto it = to_port_.find(port);
  return it == to_port_.end() ? -1 : it->second;
}

bool Components::Contains(int32_t whole, int32_t part) const {
  const std::vector<int32_t>& inside = at(whole).inside;
  return whole == part || std::binary_search(inside.begin(), inside.end(), part);
}

void Components::Take(int32_t c, std::vector<int32_t>& need) const {
  need.push_back(c);
  const auto over = over_.find(c);
  if (over != over_.end()) need.insert(need.end(), over->second.begin(), over->second.end());
}

std::vector<int32_t> Components::Walk(const PathEvidence& path) {
  std::vector<int32_t> need;
  Take(NicAt(path.source), need);
  Take(NicAt(path.destination), need);
  if (path.hops != nullptr) WalkHops(path, need);
  Sort(need);
  return need;
}

// What of it is known, and what lies between as a whole.
void Components::WalkHops(const PathEvidence& path, std::vector<int32_t>& need) {
  Addr before = path.source;
  bool gap = false;
  for (size_t i = 0; i <= path.hops->size(); ++i) {
    const bool end = i == path.hops->size();
    const Addr& next = end ? path.destination : (*path.hops)[i];
    if (!end && next.is_zero()) {
      gap = true;
      continue;
    }
    if (gap) {
      if (!end || !TakeBeyond(before, next, need)) Take(Gap(before, next), need);
    } else if (const auto link = link_of_.find({before, next}); link != link_of_.end()) {
      Take(link->second, need);
    }
    before = next;
    gap = false;
  }
}

int32_t Components::Gap(const Addr& from, const Addr& to) {
  const auto [known, added] = gap_between_.emplace(std::pair(from, to), -1);
  if (added)
    known->second = Add({.scope = absl::StrCat("between ", from.ToString(), " and ", to.ToString()), .gap = true});
  return known->second;
}

// Where a path that was never whole is cut: the link from there to its destination's leaf. Next to the one that is
// known there may be another, over which nothing has passed yet. False: there is more between them.
bool Components::TakeBeyond(const Addr& last, const Addr& destination, std::vector<int32_t>& need) {
  const auto from = switch_of_.find(last);
  const auto to = leaf_of_.find(destination);
  if (from == switch_of_.end() || to == leaf_of_.end() || from->second == to->second) return false;
  // From leaf to leaf, or into another pod, it is more than one link: where there are pods the way back has to be
  // known.
  const int tier = tiers_[static_cast<size_t>(from->second)], below = tiers_[static_cast<size_t>(to->second)];
  const bool pods = *std::max_element(tiers_.begin(), tiers_.end()) > 2;
  if (tier != below + 1 || (pods && !link_between_.contains({to->second, from->second}))) return false;
  const std::pair between(from->second, to->second);
  if (const auto known = link_between_.find(between); known != link_between_.end() && known->second >= 0)
    Take(known->second, need);
  const auto unseen = unseen_between_.find(between);
  Take(unseen != unseen_between_.end() ? unseen->second : AddUnseen(from->second, to->second), need);
  return true;
}

int32_t Components::AddUnseen(int from, int to) {
  const auto name = [&](int s) { return switch_names_[static_cast<size_t>(s)]; };
  const int32_t c = Add({.scope = absl::StrCat("link ", name(from), ">", name(to)),
                         .unseen = true,
                         .between = {from, to},
                         .own_port = false});
  unseen_between_[{from, to}] = c;
  for (const int s : {from, to}) {
    const int32_t over = FindScope("switch " + name(s));
    if (over < 0) continue;
    over_[c].push_back(over);
    all_[static_cast<size_t>(over)].inside.push_back(c);  // the greatest number of all
  }
  return c;
}

std::vector<int32_t> Components::WalkReached(const PathEvidence& path) {
  std::vector<int32_t> need;
  Take(NicAt(path.source), need);
  Addr before = path.source;
  // One that was never whole ends in silence.
  const size_t reached = path.reached != 0 ? path.reached : path.hops->size();
  for (size_t i = 0; i < reached && i < path.hops->size() && !(*path.hops)[i].is_zero(); ++i) {
    if (const auto link = link_of_.find({before, (*path.hops)[i]}); link != link_of_.end()) Take(link->second, need);
    before = (*path.hops)[i];
  }
  Sort(need);
  return need;
}

std::vector<int32_t> Components::WalkBehind(const PathEvidence& path) {
  std::vector<int32_t> need;
  const Addr& last = (*path.hops)[path.reached - 1];
  const Addr& next = path.reached < path.hops->size() ? (*path.hops)[path.reached] : path.destination;
  if (const auto link = link_of_.find({last, next}); link != link_of_.end()) Take(link->second, need);
  Sort(need);
  return need;
}

const std::vector<int32_t>& Components::Unproven(const PathEvidence& path) {
  const std::vector<int32_t>& all = Of(path);
  if (EndOf(path) < 0 || path.hops->front().is_zero()) return all;
  const std::pair<uint64_t, std::pair<Addr, Addr>> key{~path.hops_id, {path.source, path.destination}};
  const auto known = ways_.find(key);
  if (known != ways_.end()) return known->second;
  const std::vector<int32_t> lives = WalkReached(path);
  std::vector<int32_t> rest;
  std::set_difference(all.begin(), all.end(), lives.begin(), lives.end(), std::back_inserter(rest));
  return ways_.emplace(key, std::move(rest)).first->second;
}

int32_t Components::EndOf(const PathEvidence& path) const {
  if (path.hops == nullptr || path.hops->size() < 2 || path.reached != 0 || !path.hops->back().is_zero()) return -1;
  const auto last =
      std::find_if(path.hops->rbegin(), path.hops->rend(), [](const Addr& hop) { return !hop.is_zero(); });
  const auto at = last == path.hops->rend() ? switch_of_.end() : switch_of_.find(*last);
  return at == switch_of_.end() ? -1 : FindScope("switch " + switch_names_[static_cast<size_t>(at->second)]);
}

const std::vector<int32_t>& Components::Behind(const PathEvidence& path) {
  const std::pair<uint64_t, std::pair<Addr, Addr>> key{path.hops_id + path.reached, {Addr{}, path.destination}};
  const auto known = ways_.find(key);
  if (known != ways_.end()) return known->second;
  return ways_.emplace(key, WalkBehind(path)).first->second;
}

const std::vector<int32_t>& Components::Of(const PathEvidence& path) {
  const std::pair<uint64_t, std::pair<Addr, Addr>> key{path.hops == nullptr ? 0 : path.hops_id,
                                                       {path.source, path.destination}};
  const auto known = ways_.find(key);
  if (known != ways_.end()) return known->second;
  return ways_.emplace(key, Walk(path)).first->second;
}

const std::vector<int32_t>& Components::Reached(const PathEvidence& path) {
  const std::pair<uint64_t, std::pair<Addr, Addr>> key{path.hops_id + path.reached, {path.source, Addr{}}};
  const auto known = ways_.find(key);
  if (known != ways_.end()) return known->second;
  return ways_.emplace(key, WalkReached(path)).first->second;
}

}  // namespace cw::fleet
