// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/silent_peers.h"

#include <algorithm>

namespace cw::agent {

std::vector<SilentPeers::Change> SilentPeers::Step(int64_t now_ns, const std::vector<Seen>& pairs) {
  std::map<std::string, Seen> peers;
  for (const Seen& seen : pairs) {
    auto [at, added] = peers.try_emplace(seen.peer, seen);
    at->second.last_reply_ns = std::max(at->second.last_reply_ns, seen.last_reply_ns);
    at->second.interval_ns = std::max(at->second.interval_ns, seen.interval_ns);
  }
  // A peer that was taken out of the configuration has not come back.
  std::erase_if(silent_since_ns_, [&](const auto& known) { return !peers.contains(known.first); });
  std::vector<Change> changes;
  for (const auto& [name, peer] : peers) {
    if (peer.last_reply_ns == 0) continue;
    const bool silent = now_ns - peer.last_reply_ns > std::max(kLeastNs, kIntervals * peer.interval_ns);
    const auto known = silent_since_ns_.find(name);
    if (silent && known == silent_since_ns_.end()) {
      changes.push_back({name, true, now_ns - peer.last_reply_ns});
      silent_since_ns_.emplace(name, peer.last_reply_ns);
    } else if (!silent && known != silent_since_ns_.end()) {
      changes.push_back({name, false, peer.last_reply_ns - known->second});
      silent_since_ns_.erase(known);
    }
  }
  return changes;
}

}  // namespace cw::agent
