// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/live/whole_hops.h"

#include <algorithm>

namespace cw::fleet {

namespace {

// Without the silence at its end.
size_t LengthOf(const std::vector<Addr>& hops) {
  size_t length = hops.size();
  while (length > 0 && hops[length - 1].is_zero()) --length;
  return length;
}

// What both know is the same as far as the first one goes.
bool Begins(const std::vector<Addr>& shorter, size_t length, const std::vector<Addr>& longer) {
  for (size_t i = 0; i < length; ++i) {
    if (!shorter[i].is_zero() && !longer[i].is_zero() && shorter[i] != longer[i]) return false;
  }
  return true;
}

}  // namespace

void WholeHops::Complete(PathEvidence& path, int64_t now_ns) {
  path.reached = 0;
  if (path.hops == nullptr) return;
  const std::tuple key(path.source, path.destination, path.udp_port);
  const bool lives = path.state == PathEvidence::State::kAlive;
  const size_t length = LengthOf(*path.hops);
  const auto known = whole_.find(key);
  if (known != whole_.end() && length < LengthOf(*known->second.hops) &&
      Begins(*path.hops, length, *known->second.hops)) {
    path.hops = known->second.hops;
    path.hops_id = known->second.hops_id;
    if (!lives) path.reached = static_cast<uint32_t>(length);
  } else if (lives && (known != whole_.end() || whole_.size() < kMost)) {
    whole_[key] = {path.hops, path.hops_id, now_ns};
  }
}

void WholeHops::Age(int64_t now_ns) {
  std::erase_if(whole_, [&](const auto& entry) { return now_ns - entry.second.time_ns > kKeptNs; });
}

}  // namespace cw::fleet
