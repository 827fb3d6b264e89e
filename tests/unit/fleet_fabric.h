// SPDX-License-Identifier: Apache-2.0
//
// Made-up fabrics and what traces through them show: trees of two and three tiers, whose switches answer with the port
// that a packet came in by, or with one address of their own, or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

struct FabricShape {
  int pods = 1;            // with more than one there are cores above
  int leaves = 4;          // of a pod
  int spines = 2;          // of a pod, each leaf to each
  int cores_of_spine = 2;  // spine s of every pod is cabled to cores s·n … s·n+n−1
  int nics = 2;            // of a leaf
  bool own_addresses = false;
};

class Fabric {
 public:
  explicit Fabric(const FabricShape& shape);

  // All ways of all pairs of NICs, each direction.
  std::vector<Trace> Traces() const;
  // The plan: every switch with its addresses, every cable, every NIC. As wired at the time of the call.
  FleetFile Plan() const;
  // The ends at these two ports change places (both directions of both cables), as a technician's mistake would have
  // it.
  void SwapCables(int leaf_a, int leaf_b, int spine);
  void SwapNics(size_t a, size_t b);
  void MoveNic(size_t nic, int to_leaf);  // to a free port there

  Addr nic(size_t i) const { return nics_[i]; }
  size_t nics() const { return nics_.size(); }
  size_t switches() const { return names_.size(); }
  const std::string& name(int s) const { return names_[static_cast<size_t>(s)]; }
  int leaf(int pod, int l) const { return pod * (shape_.leaves + shape_.spines) + l; }
  int spine(int pod, int s) const { return pod * (shape_.leaves + shape_.spines) + shape_.leaves + s; }
  int core(int c) const { return shape_.pods * (shape_.leaves + shape_.spines) + c; }
  Addr PortTo(int at, int from) const;  // of switch `at`, where the cable from `from` ends

 private:
  void Cable(int a, int b);
  std::vector<std::vector<int>> Ways(int from_leaf, int to_leaf) const;
  bool Wired(int a, int b) const { return ports_.contains({b, a}); }

  FabricShape shape_;
  std::vector<std::string> names_;
  std::vector<Addr> nics_;
  std::vector<int> leaf_of_;                   // of each NIC
  std::vector<Addr> nic_ports_;                // of the leaf, where the NIC's cable ends
  std::map<std::pair<int, int>, Addr> ports_;  // {at, from} → port of `at`
  uint32_t next_ = 0x0b000001;
};

}  // namespace cw::fleet
