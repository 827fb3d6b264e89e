// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/gather.h"

#include <algorithm>
#include <map>

#include "userspace/api/ring.pb.h"
#include "userspace/fleet/query/host_event.h"
#include "userspace/model/addr_bytes.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kEventsAtOnce = 5000, kMostStoreSamples = 200'000;
constexpr uint64_t kStoreRun = 1;
constexpr size_t kSecondBytes = 256 << 10;  // one of many paths comes in several parts

void NamePath(const PathSample& sample, uint32_t number, const std::map<uint64_t, std::vector<Addr>>& hops,
              pb::RingSecond& out) {
  pb::RingName& name = *out.add_names();
  name.set_path(number);
  name.set_local(AddressBytes(sample.key.local));
  name.set_remote(AddressBytes(sample.key.remote));
  name.set_peer(sample.key.remote.ToString());
  name.set_udp_port(sample.key.udp_port);
  name.set_reverse(sample.key.reverse);
  const auto list = hops.find(sample.hops);
  name.set_hops_known(sample.hops != 0 && list != hops.end());
  if (!name.hops_known()) return;
  for (const Addr& hop : list->second) name.add_hops(AddressBytes(hop));
}

}  // namespace

absl::StatusOr<std::vector<pb::FleetEventOf>> EventsOfSpan(Store& store, int64_t from_ns, int64_t to_ns) {
  std::vector<pb::FleetEventOf> events;
  EventQuery query{.from_ns = from_ns, .to_ns = to_ns, .limit = kEventsAtOnce};
  while (events.size() < kMostIncidentEvents) {
    const absl::StatusOr<EventPage> page = store.Events(query);
    if (!page.ok()) return page.status();
    for (const StoredEvent& stored : page->events) events.push_back(MessageOf(stored));
    if (page->events.size() < kEventsAtOnce) break;
    query.after = page->next;
  }
  return events;
}

absl::StatusOr<std::vector<std::string>> SecondsFromStore(Store& store, const std::string& host, int64_t from_ns,
                                                          int64_t to_ns) {
  const absl::StatusOr<RangeReply> range = store.Range({.host = host, .from_ns = from_ns, .to_ns = to_ns});
  if (!range.ok()) return range.status();
  const absl::StatusOr<std::vector<HopList>> lists = store.AllHops(host);
  std::map<uint64_t, std::vector<Addr>> hops;
  if (lists.ok()) {
    for (const HopList& list : *lists) hops[list.id] = list.hops;
  }
  std::map<int64_t, std::vector<const PathSample*>> by_time;
  for (size_t i = 0; i < range->samples.size() && i < kMostStoreSamples; ++i)
    by_time[range->samples[i].time_ns].push_back(&range->samples[i]);
  const int64_t each_ns = absl::ToInt64Nanoseconds(kResolution[static_cast<size_t>(range->tier)]);
  std::map<PathKey, std::pair<uint32_t, uint64_t>> told;  // number, hops
  std::vector<std::string> seconds;
  for (const auto& [time_ns, samples] : by_time) {
    pb::RingSecond second;
    second.set_run(kStoreRun);
    second.set_from_ns(time_ns - each_ns);
    second.set_to_ns(time_ns);
    const pb::RingSecond empty = second;
    size_t bytes = 0;
    for (const PathSample* sample : samples) {
      if (bytes >= kSecondBytes) {
        seconds.push_back(second.SerializeAsString());
        second = empty;
        bytes = 0;
      }
      const auto [at, fresh] = told.try_emplace(sample->key, static_cast<uint32_t>(told.size() + 1), sample->hops);
      if (fresh || at->second.second != sample->hops) {
        NamePath(*sample, at->second.first, hops, second);
        bytes += second.names().rbegin()->ByteSizeLong();
      }
      at->second.second = sample->hops;
      pb::RingPath& out = *second.add_paths();
      out.set_path(at->second.first);
      out.set_state(static_cast<pb::PathState>(sample->state));
      out.set_queue(sample->queue.Pack());
      out.set_base_ns(sample->base_ns);
      out.set_sent(sample->sent);
      out.set_answered(sample->sent - std::min(sample->lost, sample->sent));
      bytes += out.ByteSizeLong();
    }
    seconds.push_back(second.SerializeAsString());
  }
  return seconds;
}

}  // namespace cw::fleet
