// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/live/whole_hops.h"

#include <algorithm>

namespace cw::fleet {

void WholeHops::Complete(PathEvidence& path, int64_t now_ns) {
  path.reached = 0;
  if (path.hops == nullptr) return;
  const std::vector<Addr>& now = *path.hops;
  const bool cut = now.empty() || now.back().is_zero();
  const std::tuple key(path.source, path.destination, path.udp_port);
  if (!cut) {
    if (whole_.size() < kMost || whole_.contains(key)) whole_[key] = {path.hops, path.hops_id, now_ns};
    return;
  }
  const auto known = whole_.find(key);
  if (known == whole_.end()) return;
  const auto reached = std::find_if(now.begin(), now.end(), [](const Addr& hop) { return hop.is_zero(); });
  const std::vector<Addr>& before = *known->second.hops;
  const auto length = static_cast<size_t>(reached - now.begin());
  if (length > before.size() || !std::equal(now.begin(), reached, before.begin())) return;
  path.hops = known->second.hops;
  path.hops_id = known->second.hops_id;
  path.reached = length < before.size() ? static_cast<uint32_t>(length) : 0;
}

void WholeHops::Age(int64_t now_ns) {
  std::erase_if(whole_, [&](const auto& entry) { return now_ns - entry.second.time_ns > kKeptNs; });
}

}  // namespace cw::fleet
