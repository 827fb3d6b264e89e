// SPDX-License-Identifier: Apache-2.0
//
// Made-up fabrics of two and three tiers with rails, planes and parallel links, and what is wrong with them now. Pure.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "userspace/fleet/topology/fleet_file.h"
#include "userspace/model/addr.h"

namespace cw::sim {

using Random = std::mt19937_64;
inline int Draw(Random& random, int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }
inline constexpr int64_t kSecondNs = 1'000'000'000;
inline double Chance(Random& random) { return std::uniform_real_distribution<double>(0, 1)(random); }

struct FleetShape {
  std::string name = "two tiers";
  int pods = 1;           // with more than one there are cores above
  int groups = 4;         // of hosts, in a pod; each has a leaf per rail
  int rails = 1;          // = NICs of a host
  int hosts = 4;          // of a group
  int spines = 4;         // of a pod, each leaf to each; with planes of a pod and rail
  bool planes = false;    // a network of its own for each rail
  int cores = 2;          // above each spine
  int parallel = 1;       // links between a leaf and a spine
  int peers = 6;          // that a NIC probes, on its own rail; they probe it, too
  int ways = 4;           // to each of them at most
  bool loopback = false;  // switches answer traces with one address of their own
  bool ipv6 = false;
  bool planned = true;       // there is a fleet.toml
  double silent = 0;         // share of switches that answer no trace
  bool silent_tier = false;  // the spines do not
  double missing = 0.02;     // share of hosts without an agent
  double late = 0.02;        // share of hosts whose clock is behind
  bool liar = true;          // one host
  bool Answers() const { return silent == 0 && !silent_tier; }
};

class FleetFabric {
 public:
  struct Edge {
    int from = -1, to = -1;  // nodes: switches, then NICs
    int back = -1;           // the other direction of its cable
    Addr port;               // where it ends
    double loss = 0, queue_ns = 0;
    bool paused = false;  // for the class of the probes
  };
  struct Nic {
    int host = 0, rail = 0, leaf = 0, up = 0, down = 0;  // edges
    Addr address;
  };
  using Way = std::vector<int>;  // edges

  FleetFabric(const FleetShape& shape, Random& random);

  // From NIC to NIC; a few, by chance.
  std::vector<Way> Ways(int from, int to, Random& random) const;
  // As a trace finds it now: up to where it is cut.
  std::vector<Addr> Trace(const Way& way) const;
  // What answers where this edge ends; zero: nothing.
  Addr HopAt(int edge) const;
  fleet::FleetFile Plan() const;
  int AllHosts() const { return hosts_; }
  bool IsSwitch(int node) const { return node < switches_; }
  bool IsSilent(int node) const { return IsSwitch(node) && silent_[static_cast<size_t>(node)]; }
  bool IsLeaf(int node) const {
    return IsSwitch(node) && name_[static_cast<size_t>(node)].find("leaf") != std::string::npos;
  }
  int RailOfLeaf(int node) const;

  std::vector<Edge> edges;
  std::vector<Nic> nics;

 private:
  int Node(const std::string& name);
  int AddEdge(int from, int to, Addr port);
  void BothWays(int a, int b);
  void AddHosts(const std::vector<std::vector<int>>& leaves);
  Addr Address(uint32_t number) const;
  void Climb(int at, int to, Way& way, std::vector<Way>& all) const;
  void Descend(int at, int to, Way& way, std::vector<Way>& all) const;

  const FleetShape shape_;
  std::vector<std::string> name_;
  std::vector<std::vector<int>> up_, down_;  // node → edges to nodes above, below
  std::vector<bool> silent_;
  std::vector<Addr> loopback_;
  int switches_ = 0, hosts_ = 0;
  uint32_t next_port_ = 0x0b000001;
};

}  // namespace cw::sim
