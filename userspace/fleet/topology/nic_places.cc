// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/nic_places.h"

#include <algorithm>
#include <map>

namespace cw::fleet {

void NicPlaces::Learn(absl::Span<const Trace> traces) {
  absl::flat_hash_map<Addr, std::map<Addr, int64_t>> told;  // NIC → first hop → when last
  for (const Trace& trace : traces) {
    if (trace.hops.empty() || trace.hops[0].is_zero()) continue;
    int64_t& time_ns = told[trace.source].try_emplace(trace.hops[0], trace.time_ns).first->second;
    time_ns = std::max(time_ns, trace.time_ns);
  }
  for (const auto& [nic, firsts] : told) {
    int64_t newest_ns = 0, past_ns = 0;
    for (const auto& [hop, time_ns] : firsts) newest_ns = std::max(newest_ns, time_ns);
    Place& place = places_[nic];
    const std::set<Addr> before = std::move(place.first);
    place.first.clear();
    bool fresh = false;
    for (const auto& [hop, time_ns] : firsts) {
      if (time_ns < newest_ns - kSameReportNs) {
        past_ns = std::max(past_ns, time_ns);
      } else {
        place.first.insert(hop);
        fresh |= !before.contains(hop);
      }
    }
    if (!fresh) continue;
    place.moved_ns = std::max(place.moved_ns, before.empty() ? past_ns : newest_ns);
    if (place.moved_ns != 0) settled_ns_ = std::max(settled_ns_, place.moved_ns + kTracedAnewNs);
  }
}

bool NicPlaces::IsPast(const Trace& trace) const {
  const auto place = places_.find(trace.source);
  return place != places_.end() && !trace.hops.empty() && !trace.hops[0].is_zero() &&
         !place->second.first.contains(trace.hops[0]);
}

bool NicPlaces::EndHolds(const Trace& trace) const {
  const auto place = places_.find(trace.destination);
  return place == places_.end() || place->second.moved_ns == 0 ||
         trace.time_ns >= place->second.moved_ns + kTracedAnewNs;
}

}  // namespace cw::fleet
