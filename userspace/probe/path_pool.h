// SPDX-License-Identifier: Apache-2.0
//
// What the pairs of one NIC learn together. Pairs whose traces show the same hops end behind the same switch, so they
// have the same paths, though their ports take others of them (switches hash the destination, too). A pair that has
// seen all paths of its group can stop drawing ports: whether there is one more is answered by all ports that any pair
// of the group has drawn (discovery.h's rule, over the sum). Sound while the fabric is as it was: a change makes the
// group unknown, and each group is learned anew after a while.
// Pure. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <list>
#include <set>

#include "userspace/probe/hops.h"
#include "userspace/probe/self_test.h"

namespace cw::probe {

class PathPool {
 public:
  struct Group {
    std::set<Hops> paths;
    int ports = 0;  // drawn by chance, with hops that are certain
    Hashing hashing = Hashing::kUnknown;
    int64_t since_ns = 0;  // the first was added
  };

  // What a pair has found: the paths that its ports take, and how many of the ports were drawn by chance. Groups that
  // have one of them become one. No path: nothing happens.
  void Add(const std::set<Hops>& paths, int ports, Hashing hashing, int64_t now_ns);
  // The group that has all of these paths; nullptr: none has, or there are none. Until the next change.
  const Group* Find(const std::set<Hops>& paths) const;
  // Without the group that has this path, if there is one.
  void Forget(const Hops& path);
  // Without groups that were begun before.
  void ForgetBefore(int64_t since_ns);

 private:
  std::list<Group> groups_;  // as many as switches that hosts hang on
};

}  // namespace cw::probe
