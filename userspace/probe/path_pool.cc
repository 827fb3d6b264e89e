// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/path_pool.h"

#include <algorithm>
#include <utility>

namespace cw::probe {

void PathPool::Add(const std::set<Hops>& paths, int ports, Hashing hashing, int64_t now_ns) {
  if (paths.empty()) return;
  Group all{.paths = paths, .ports = ports, .hashing = hashing, .since_ns = now_ns};
  const auto shares = [&](const Group& group) {
    return std::any_of(paths.begin(), paths.end(), [&](const Hops& path) { return group.paths.contains(path); });
  };
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (!shares(*it)) {
      ++it;
      continue;
    }
    all.paths.merge(it->paths);
    all.ports += it->ports;
    if (all.hashing == Hashing::kUnknown) all.hashing = it->hashing;
    all.since_ns = std::min(all.since_ns, it->since_ns);
    it = groups_.erase(it);
  }
  groups_.push_back(std::move(all));
}

const PathPool::Group* PathPool::Find(const std::set<Hops>& paths) const {
  if (paths.empty()) return nullptr;
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return std::includes(g.paths.begin(), g.paths.end(), paths.begin(), paths.end());
  });
  return group == groups_.end() ? nullptr : &*group;
}

void PathPool::Forget(const Hops& path) {
  groups_.remove_if([&](const Group& group) { return group.paths.contains(path); });
}

void PathPool::ForgetBefore(int64_t since_ns) {
  groups_.remove_if([&](const Group& group) { return group.since_ns < since_ns; });
}

}  // namespace cw::probe
