// SPDX-License-Identifier: Apache-2.0
//
// One evaluation under way: what the parts of Findings hand to each other. Private to this folder.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "userspace/fleet/findings/findings.h"

namespace cw::fleet {

// What a path's newest word is worth.
enum class Word : uint8_t { kGood, kBad, kNeither };

inline bool CrossesAny(const std::vector<int32_t>& needs, const std::vector<int32_t>& components) {
  return std::any_of(components.begin(), components.end(),
                     [&](int32_t c) { return std::binary_search(needs.begin(), needs.end(), c); });
}

// Of times by host: as two of them say, so that one who lies moves nothing.
inline int64_t SecondNewest(const std::map<uint32_t, int64_t>& by_host) {
  std::vector<int64_t> times;
  for (const auto& [host, time_ns] : by_host) times.push_back(time_ns);
  std::sort(times.rbegin(), times.rend());
  return times.empty() ? 0 : times[std::min<size_t>(1, times.size() - 1)];
}

// Its typical queueing delay says that something is in its path.
inline bool IsAbove(const PathEvidence& path, const FindingRules& rules) {
  return path.queue_ns > std::max(rules.queue_floor_ns, rules.queue_over_base * path.base_ns);
}

struct Findings::Scene {
  const Picture& picture;
  std::vector<bool> host_fresh;                     // by place
  absl::flat_hash_set<absl::string_view> speaking;  // names of those
  std::vector<uint32_t> paths;                      // that count
  std::vector<const std::vector<int32_t>*> needs;   // of each of them
  std::vector<Word> word;                           // of each of them
  std::vector<bool> explained;                      // by something dead; of each of them
  // Hosts that all others find dead and that said nothing since: when that began, by our clock; 0: not so. By place.
  std::vector<int64_t> unreached_ns;
  std::deque<std::vector<int32_t>> silent_needs;  // of observations of those hosts
  std::vector<int32_t> dead;                      // components
  std::vector<int32_t> lossy;                     // links that lose packets
  std::vector<Suspect> flaps;                     // what paths that died many times have in common
  std::vector<int32_t> flapping;                  // what died more than once, and a moment ago
  std::set<Addr> taken_along;                     // NICs that are down by their hosts' word, and by a leaf that died
  std::set<std::string> gaps;                     // scopes of what would explain dead paths, but answers no trace
  std::set<std::string> explained_hosts;          // their silence is explained
  std::map<std::pair<Cause, std::string>, Suspicion> suspicions;

  const PathEvidence& path(size_t i) const { return picture.paths[paths[i]]; }
  // When its host said so, by our clock; and since when the path is silent, as far as it is known.
  int64_t SaidNs(size_t i) const {
    const HostEvidence& host = picture.hosts[path(i).host];
    return host.last_seen_ns - std::max<int64_t>(0, host.newest_ns - path(i).time_ns);
  }
  int64_t SinceNs(size_t i) const { return SaidNs(i) - path(i).silent_ns; }
};

}  // namespace cw::fleet
