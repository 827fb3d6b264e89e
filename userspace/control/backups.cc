// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/backups.h"

#include <algorithm>
#include <limits>

namespace cw::control {
namespace {

int SharedLinks(const PathObservation& a, const PathObservation& b) {
  return static_cast<int>(
      std::ranges::count_if(a.links, [&](uint64_t link) { return std::ranges::find(b.links, link) != b.links.end(); }));
}

// Usable slots that have the fewest links in common with the path.
uint16_t MostDisjoint(absl::Span<const PathObservation> paths, const PathObservation& from) {
  int fewest = std::numeric_limits<int>::max();
  uint16_t mask = 0;
  for (const PathObservation& path : paths) {
    if (!path.usable || path.slot == from.slot) continue;
    const int shared = SharedLinks(from, path);
    if (shared < fewest) mask = 0;
    fewest = std::min(fewest, shared);
    if (shared == fewest) mask |= static_cast<uint16_t>(1u << path.slot);
  }
  return mask;
}

}  // namespace

uint16_t Backups::Best(absl::Span<const PathObservation> paths, uint16_t among) const {
  double least = std::numeric_limits<double>::infinity();
  for (const PathObservation& path : paths) {
    if (among >> path.slot & 1) least = std::min(least, queue_ns_[path.slot]);
  }
  uint16_t mask = 0;
  for (const PathObservation& path : paths) {
    const bool good = queue_ns_[path.slot] <= rules_.queue_factor * least + rules_.queue_slack_ns;
    if ((among >> path.slot & 1) != 0 && good) mask |= static_cast<uint16_t>(1u << path.slot);
  }
  return mask;
}

std::array<uint16_t, kMaxSlots> Backups::Step(absl::Span<const PathObservation> paths) {
  for (const PathObservation& path : paths) {
    if (path.queue_samples > 0) queue_ns_[path.slot] += rules_.smooth * (path.queue_ns - queue_ns_[path.slot]);
  }
  std::array<uint16_t, kMaxSlots> backups{};
  for (const PathObservation& path : paths) backups[path.slot] = Best(paths, MostDisjoint(paths, path));
  return backups;
}

}  // namespace cw::control
