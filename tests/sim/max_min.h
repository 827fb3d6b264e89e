// SPDX-License-Identifier: Apache-2.0
//
// Max-min fair rates: the link with the least share per flow is filled first, and its flows are fixed (D. Bertsekas, R.
// Gallager, "Data Networks", §6.5.2). Every link carries 1. One thread per object, which keeps its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/fabric_tree.h"

namespace cw::sim {

struct RoutedFlow {
  int hops = 0;
  Tree::Route links{};
  double rate = 0;
};

class MaxMin {
 public:
  explicit MaxMin(int links) : held_back_(links), share_(links), load_(links) {}

  void Share(std::vector<RoutedFlow>& flows);
  // From the last sharing: flows that the link holds back, what each of them gets, and the load of all.
  int HeldBack(int link) const { return held_back_[link]; }
  double ShareOn(int link) const { return share_[link]; }
  double Load(int link) const { return load_[link]; }

 private:
  std::vector<int> held_back_;
  std::vector<double> share_, load_;
};

}  // namespace cw::sim
