// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_fabric.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace cw::sim {

FleetFabric::FleetFabric(const FleetShape& shape, Random& random) : shape_(shape) {
  std::vector<std::vector<int>> leaves;  // by pod and group, by rail
  std::vector<int> cores;
  const int planes = shape.planes ? shape.rails : 1, all_spines = planes * shape.spines;
  for (int c = 0; shape.pods > 1 && c < all_spines * shape.cores; ++c) cores.push_back(Node(absl::StrCat("core", c)));
  for (int p = 0; p < shape.pods; ++p) {
    std::vector<int> spines;
    for (int s = 0; s < all_spines; ++s) spines.push_back(Node(absl::StrCat("pod", p, "-spine", s)));
    for (int s = 0; s < all_spines && !cores.empty(); ++s) {
      for (int c = 0; c < shape.cores; ++c)
        BothWays(spines[static_cast<size_t>(s)], cores[static_cast<size_t>(s * shape.cores + c)]);
    }
    for (int g = 0; g < shape.groups; ++g) {
      leaves.emplace_back();
      for (int r = 0; r < shape.rails; ++r) {
        leaves.back().push_back(Node(absl::StrCat("pod", p, "-g", g, "-leaf", r)));
        for (int s = 0; s < all_spines; ++s) {
          for (int l = 0; l < shape.parallel && (planes == 1 || s / shape.spines == r); ++l)
            BothWays(leaves.back().back(), spines[static_cast<size_t>(s)]);
        }
      }
    }
  }
  switches_ = static_cast<int>(name_.size());
  for (int s = 0; s < switches_; ++s) {
    const bool spine = name_[static_cast<size_t>(s)].find("spine") != std::string::npos;
    silent_.push_back((shape.silent_tier && spine) || Chance(random) < shape.silent);
    loopback_.push_back(Address(0x0c000001 + static_cast<uint32_t>(s)));
  }
  AddHosts(leaves);
}

void FleetFabric::AddHosts(const std::vector<std::vector<int>>& leaves) {
  uint32_t address = 0x0a000001;
  for (const std::vector<int>& group : leaves) {
    for (int h = 0; h < shape_.hosts; ++h, ++hosts_) {
      for (int r = 0; r < shape_.rails; ++r) {
        const Addr own = Address(address++);
        const int node = Node(absl::StrCat("nic", nics.size())), leaf = group[static_cast<size_t>(r)];
        const int up = AddEdge(node, leaf, Address(next_port_++)), down = AddEdge(leaf, node, own);
        edges[static_cast<size_t>(up)].back = down;
        edges[static_cast<size_t>(down)].back = up;
        nics.push_back({.host = hosts_, .rail = r, .leaf = leaf, .up = up, .down = down, .address = own});
      }
    }
  }
}

Addr FleetFabric::Address(uint32_t number) const {
  if (!shape_.ipv6) return Addr::FromV4(number);
  Addr out;
  out.bytes[0] = 0x20;
  out.bytes[1] = 0x01;
  out.bytes[2] = 0x0d;
  out.bytes[3] = 0xb8;
  for (size_t i = 0; i < 4; ++i) out.bytes[12 + i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  return out;
}

int FleetFabric::Node(const std::string& name) {
  name_.push_back(name);
  up_.emplace_back();
  down_.emplace_back();
  return static_cast<int>(name_.size()) - 1;
}

int FleetFabric::AddEdge(int from, int to, Addr port) {
  edges.push_back({.from = from, .to = to, .port = port});
  return static_cast<int>(edges.size()) - 1;
}

void FleetFabric::BothWays(int a, int b) {
  const int up = AddEdge(a, b, Address(next_port_++)), down = AddEdge(b, a, Address(next_port_++));
  edges[static_cast<size_t>(up)].back = down;
  edges[static_cast<size_t>(down)].back = up;
  up_[static_cast<size_t>(a)].push_back(up);
  down_[static_cast<size_t>(b)].push_back(down);
}

void FleetFabric::Descend(int at, int to, Way& way, std::vector<Way>& all) const {
  if (at == to) return all.push_back(way);
  for (const int e : down_[static_cast<size_t>(at)]) {
    way.push_back(e);
    Descend(edges[static_cast<size_t>(e)].to, to, way, all);
    way.pop_back();
  }
}

// The lowest switch that leads there: no detours.
void FleetFabric::Climb(int at, int to, Way& way, std::vector<Way>& all) const {
  const size_t before = all.size();
  Descend(at, to, way, all);
  if (all.size() > before) return;
  for (const int e : up_[static_cast<size_t>(at)]) {
    way.push_back(e);
    Climb(edges[static_cast<size_t>(e)].to, to, way, all);
    way.pop_back();
  }
}

std::vector<FleetFabric::Way> FleetFabric::Ways(int from, int to, Random& random) const {
  const Nic &a = nics[static_cast<size_t>(from)], &b = nics[static_cast<size_t>(to)];
  std::vector<Way> ways;
  Way way = {a.up};
  Climb(a.leaf, b.leaf, way, ways);
  std::shuffle(ways.begin(), ways.end(), random);
  if (ways.size() > static_cast<size_t>(shape_.ways)) ways.resize(static_cast<size_t>(shape_.ways));
  for (Way& w : ways) w.push_back(b.down);
  return ways;
}

Addr FleetFabric::HopAt(int edge) const {
  const Edge& e = edges[static_cast<size_t>(edge)];
  if (IsSilent(e.to)) return {};
  return shape_.loopback && IsSwitch(e.to) ? loopback_[static_cast<size_t>(e.to)] : e.port;
}

std::vector<Addr> FleetFabric::Trace(const Way& way) const {
  std::vector<Addr> hops;
  for (size_t i = 0; i + 1 < way.size(); ++i) {
    if (edges[static_cast<size_t>(way[i])].loss >= 1) break;
    hops.push_back(HopAt(way[i]));
  }
  return hops;
}

int FleetFabric::RailOfLeaf(int node) const {
  for (const Nic& nic : nics) {
    if (nic.leaf == node) return nic.rail;
  }
  return -1;
}

fleet::FleetFile FleetFabric::Plan() const {
  fleet::FleetFile plan;
  for (int s = 0; s < switches_ && shape_.planned; ++s) {
    fleet::PlannedSwitch planned{.name = name_[static_cast<size_t>(s)]};
    if (shape_.loopback) planned.addresses.push_back(loopback_[static_cast<size_t>(s)]);
    for (const Edge& e : edges) {
      if (e.to == s) planned.addresses.push_back(e.port);
    }
    plan.switches.push_back(planned);
  }
  for (const Edge& e : edges) {
    if (shape_.planned && !shape_.loopback && IsSwitch(e.from) && IsSwitch(e.to))
      plan.cables.push_back({name_[static_cast<size_t>(e.from)], e.port});
  }
  return plan;
}

}  // namespace cw::sim
