// SPDX-License-Identifier: Apache-2.0
//
// A three-tier fat tree (M. Al-Fares et al., SIGCOMM 2008): pods of k/2 leaves of k/2 NICs each, k/2 aggregation
// switches per pod, (k/2)² cores. With fewer pods than k the cores have ports free. Links by number: six groups of as
// many as there are NICs, up and down for hosts, leaves and aggregation switches. A value.
#pragma once

#include <array>

namespace cw::sim {

struct Tree {
  static constexpr int kMaxHops = 6;
  using Route = std::array<int, kMaxHops>;

  Tree(int ports, int pod_count) : half(ports / 2), pods(pod_count > 0 ? pod_count : ports), nics(pods * half * half) {}
  int half;
  int pods;
  int nics;

  int Links() const { return 6 * nics; }
  int Pod(int nic) const { return nic / (half * half); }
  int Leaf(int nic) const { return nic / half; }  // numbered through all pods
  // Paths between two NICs; 1 under one leaf.
  int Paths(int a, int b) const {
    if (Leaf(a) == Leaf(b)) return 1;
    return Pod(a) == Pod(b) ? half : half * half;
  }
  // Links of path `p` in order; returns their number. The first is the sender's own, the last the receiver's.
  int Links(int a, int b, int p, Route& links) const {
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

}  // namespace cw::sim
