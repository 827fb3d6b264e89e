// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/silent_peers.h"

#include <algorithm>

namespace cw::agent {

std::vector<SilentPeers::Change> SilentPeers::Step(int64_t now_ns, const std::vector<Seen>& pairs) {
  std::map<std::string, std::vector<const Seen*>> peers;
  for (const Seen& seen : pairs) {
    if (seen.answered) peers[seen.peer].push_back(&seen);
  }
  std::map<Name, int64_t> now;  // what is silent: since when
  for (const auto& [peer, seen] : peers) {
    const auto silent = [](const Seen* pair) { return pair->silent_ns > kLeastNs; };
    if (std::all_of(seen.begin(), seen.end(), silent)) {
      const auto last = std::min_element(seen.begin(), seen.end(),
                                         [](const Seen* a, const Seen* b) { return a->silent_ns < b->silent_ns; });
      now[{peer, ""}] = now_ns - (*last)->silent_ns;
      continue;
    }
    for (const Seen* pair : seen) {
      if (silent(pair)) now[{peer, pair->nics}] = now_ns - pair->silent_ns;
    }
  }
  std::vector<Change> changes;
  for (const auto& [name, since_ns] : now) {
    if (silent_since_ns_.emplace(name, since_ns).second)
      changes.push_back({name.first, name.second, true, now_ns - since_ns});
  }
  for (auto known = silent_since_ns_.begin(); known != silent_since_ns_.end();) {
    if (now.contains(known->first)) {
      ++known;
      continue;
    }
    // A peer that was taken out of the configuration has not come back; one all of whose NICs are silent now, neither.
    const auto& [peer, nics] = known->first;
    if (peers.contains(peer) && !now.contains({peer, ""}))
      changes.push_back({peer, nics, false, now_ns - known->second});
    known = silent_since_ns_.erase(known);
  }
  return changes;
}

}  // namespace cw::agent
