// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/returns.h"

#include <algorithm>
#include <set>

namespace cw::control {
namespace {

constexpr int64_t kMostSteps = 30;  // 2^30 flows: the return is over

}  // namespace

void Returns::Left(const FlowKey& flow, uint32_t pair, ReturnPlace from, ReturnPlace to) {
  if (from.slot == kSlotNone) return;
  auto [entry, fresh] = away_.try_emplace(flow, Away{.pair = pair, .home = from});
  Away& away = entry->second;
  // Back home already, and away again: the home is this one.
  if (!fresh && away.at == from && !away.asked) {
    away.at = to;
    return;
  }
  if (!fresh) away = Away{.pair = pair, .home = away.home};
  away.at = to;
}

// False: there is nothing to bring back any more.
bool Returns::Follow(Away& away, const ReturnFlow* flow) const {
  if (flow == nullptr || !flow->free || flow->pair != away.pair) return false;
  if (flow->at == away.home) return flow->wish != kSlotNone && flow->wish == away.at.slot;  // it is about to leave
  // A pending move that is none of ours: somebody else has a use for it.
  if (flow->wish != kSlotNone && !(away.asked && flow->wish == away.home.slot)) return false;
  return flow->at == away.at;
}

int64_t Returns::Budget(const Path& path, int64_t now_ns) const {
  const int64_t steps = std::min((now_ns - path.since_ns) / step_ns_, kMostSteps);
  return (int64_t{1} << steps) - 1;
}

std::vector<ReturnAction> Returns::Step(int64_t now_ns, const std::vector<ReturnFlow>& flows, const Usable& usable) {
  std::vector<ReturnAction> actions;
  if (step_ns_ <= 0) away_.clear();
  if (away_.empty()) {
    paths_.clear();
    return actions;
  }
  absl::flat_hash_map<FlowKey, const ReturnFlow*> now;
  for (const ReturnFlow& flow : flows) now[flow.key] = &flow;
  absl::erase_if(away_, [&](auto& entry) {
    const auto found = now.find(entry.first);
    return !Follow(entry.second, found == now.end() ? nullptr : found->second);
  });

  std::vector<FlowKey> order;  // the same for the same flows, whatever the table's order is
  for (const auto& [key, away] : away_) order.push_back(key);
  std::sort(order.begin(), order.end());
  std::set<PathKey> wanted;
  for (const FlowKey& key : order) {
    Away& away = away_[key];
    const PathKey home{away.pair, away.home.slot};
    if (!usable(away.pair, away.home)) {
      if (away.asked) actions.push_back({.flow = key, .pair = away.pair, .to = away.home, .take_back = true});
      away.asked = false;
      paths_.erase(home);
      continue;
    }
    wanted.insert(home);
    Path& path = paths_.try_emplace(home, Path{.since_ns = now_ns}).first->second;
    if (away.asked || path.asked >= Budget(path, now_ns)) continue;
    ++path.asked;
    away.asked = true;
    actions.push_back({.flow = key, .pair = away.pair, .to = away.home});
  }
  std::erase_if(paths_, [&](const auto& entry) { return !wanted.contains(entry.first); });
  return actions;
}

}  // namespace cw::control
