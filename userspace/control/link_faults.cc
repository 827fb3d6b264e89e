// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/link_faults.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace cw::control {

LinkFaults FindLinkFaults(absl::Span<const PathHealth> paths) {
  std::set<uint64_t> alive;
  for (const PathHealth& path : paths) {
    if (!path.dead) alive.insert(path.links.begin(), path.links.end());
  }
  std::map<uint64_t, std::set<size_t>> explains;  // by link: dead paths not yet explained
  std::set<size_t> open;
  for (size_t p = 0; p < paths.size(); ++p) {
    if (!paths[p].dead || paths[p].links.empty()) continue;
    open.insert(p);
    for (const uint64_t link : paths[p].links) {
      if (!alive.contains(link)) explains[link].insert(p);
    }
  }
  LinkFaults found;
  while (true) {
    const auto best = std::max_element(explains.begin(), explains.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();  // of equals the first: the lowest name
    });
    if (best == explains.end() || best->second.empty()) break;
    const std::set<size_t> taken = best->second;
    LinkFault fault{{}, {taken.begin(), taken.end()}};
    for (const auto& [link, dead] : explains) {
      if (dead == taken) fault.links.push_back(link);
    }
    found.faults.push_back(std::move(fault));
    for (auto& [link, dead] : explains) {
      std::set<size_t> left;
      std::set_difference(dead.begin(), dead.end(), taken.begin(), taken.end(), std::inserter(left, left.end()));
      dead = std::move(left);
    }
    for (const size_t p : taken) open.erase(p);
  }
  found.unexplained.assign(open.begin(), open.end());
  return found;
}

}  // namespace cw::control
