// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_service.h"

#include <utility>

#include "userspace/fleet/query/host_event.h"

namespace cw::sim {

void FleetService::Connect(const std::string& host, uint64_t run, int64_t now_ns) {
  cwfabric::v1::Hello hello;
  hello.set_host(host);
  hello.set_run(run);
  if (!ingest_.Connect(hello, {.names = {host}, .addresses = {}, .from = ""}, absl::FromUnixNanos(now_ns)).ok())
    ++refused_;
}

void FleetService::Take(const std::string& host, const cwfabric::v1::Batch& batch, int64_t now_ns) {
  refused_ += ingest_.Enqueue(host, batch, absl::FromUnixNanos(now_ns)).has_value();
}

bool FleetService::Settle(int64_t now_ns) {
  if (ingest_.has_work()) {
    for (const auto& [host, ack] : ingest_.Flush(absl::FromUnixNanos(now_ns))) refused_ += ack.refusals_size() > 0;
  }
  return std::exchange(changes_, ingest_.changes()) != changes_;
}

std::vector<fleet::Finding> FleetService::Look(int64_t now_ns) {
  for (const fleet::LiveHost* host : ingest_.Hosts()) live_.Copy(*host, absl::FromUnixNanos(now_ns));
  picture_ = {.now_ns = now_ns};
  live_.AddPaths(picture_, {}).IgnoreError();
  live_.LookAtFabric(picture_);
  const absl::StatusOr<fleet::EventPage> page = store_.Events({.after = events_after_});
  for (const fleet::StoredEvent& stored : page->events) {
    cwfabric::v1::FleetEvent event;
    if (!fleet::ConcernsFindings(stored.type) || !event.ParseFromString(stored.payload)) continue;
    picture_.events.push_back(fleet::HostEventOf(stored.host, stored.run, event));
    picture_.events.back().time_ns = stored.time_ns;
  }
  events_after_ = page->next;
  return findings_.Evaluate(picture_);
}

}  // namespace cw::sim
