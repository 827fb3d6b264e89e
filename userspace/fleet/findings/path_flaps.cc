// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/path_flaps.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostKept = 64, kMostPaths = 2'000'000;
constexpr int64_t kHourNs = 3'600'000'000'000;
constexpr int64_t kAnewNs = 1'500'000'000;  // silent since so much later than before: it lived in between

}  // namespace

void PathFlaps::Take(uint64_t path, bool dead, int64_t since_ns, int64_t now_ns) {
  auto it = paths_.find(path);
  if (it == paths_.end()) {
    if (!dead || paths_.size() >= kMostPaths) return;
    it = paths_.try_emplace(path).first;
  }
  Path& p = it->second;
  const bool anew = dead && (!p.dead || (since_ns != 0 && p.since_ns != 0 && since_ns - p.since_ns > kAnewNs));
  p.dead = dead;
  if (dead) p.since_ns = since_ns;
  if (!anew) return;
  p.died_ns.push_back(now_ns);
  if (p.died_ns.size() > kMostKept) p.died_ns.pop_front();
}

void PathFlaps::Age(int64_t now_ns) {
  absl::erase_if(paths_, [&](auto& entry) {
    std::deque<int64_t>& died_ns = entry.second.died_ns;
    while (!died_ns.empty() && died_ns.front() < now_ns - kHourNs) died_ns.pop_front();
    return died_ns.empty() && !entry.second.dead;
  });
}

size_t PathFlaps::CountOf(uint64_t path) const {
  const auto it = paths_.find(path);
  return it == paths_.end() ? 0 : it->second.died_ns.size();
}

int64_t PathFlaps::LastNs(uint64_t path) const {
  const auto it = paths_.find(path);
  return it == paths_.end() || it->second.died_ns.empty() ? 0 : it->second.died_ns.back();
}

}  // namespace cw::fleet
