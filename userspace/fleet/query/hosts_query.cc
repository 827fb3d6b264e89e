// SPDX-License-Identifier: Apache-2.0
// Hosts: whether they are there, their paths by state, and of one its NICs and clock; now and then.
#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/fleet/query/query.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kNewestNs = INT64_MAX / 2;  // whatever a host's clock says

void Count(PathState state, pb::FleetHost& out) {
  switch (state) {
    case PathState::kUp:
      return out.set_up(out.up() + 1);
    case PathState::kSuspect:
      return out.set_suspect(out.suspect() + 1);
    case PathState::kDead:
      return out.set_dead(out.dead() + 1);
    case PathState::kPaused:
      return out.set_paused(out.paused() + 1);
    case PathState::kSilent:
      return out.set_silent(out.silent() + 1);
    case PathState::kNew:
      return out.set_new_(out.new_() + 1);
  }
}

void Fill(const LiveHost& host, pb::FleetHost& out) {
  out.set_host(host.host);
  out.set_connected(host.connected);
  out.set_version(host.version);
  if (host.last_seen != absl::InfinitePast()) out.set_last_seen_ns(absl::ToUnixNanos(host.last_seen));
  out.set_newest_ns(host.newest_ns);
  out.set_batches(host.batches);
  out.set_refused(host.refused);
  out.set_records_left_out(host.records_left_out);
  out.set_dropped_detail(host.dropped_detail);
  out.set_dropped_events(host.dropped_events);
  out.set_metrics_address(host.metrics);
  out.set_metrics_fault(host.metrics_fault);
  out.set_twins(host.TwinsNow(absl::Now()));
  out.set_last_refusal(host.last_refusal);
  out.set_refused_reports(host.refused_reports);
  for (const auto& [key, sample] : host.paths) Count(sample.state, out);
}

// What it told of itself; what cannot be read is left out.
void FillOwn(const std::vector<Document>& documents, pb::FleetHost& out) {
  for (const Document& document : documents) {
    pb::Inventory inventory;
    if (document.kind == "inventory" && inventory.ParseFromString(document.bytes))
      out.mutable_nics()->Swap(inventory.mutable_nics());
    pb::ClockState clock;
    if (document.kind == "clock" && clock.ParseFromString(document.bytes)) *out.mutable_clock() = clock;
  }
}

}  // namespace

absl::StatusOr<pb::FleetHostsReply> Query::Hosts(const pb::FleetHostsRequest& request) {
  if (request.at_ns() != 0) return HostsAt(request);
  const auto wanted = [&](const std::string& host) { return request.host().empty() || request.host() == host; };
  std::map<std::string, pb::FleetHost> known;
  each_host_([&](const LiveHost& host) {
    if (wanted(host.host)) Fill(host, known[host.host]);
  });
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& seen : *kept) {
    const bool live = known.contains(seen.host);
    if (!wanted(seen.host) || (!live && seen.facts.removed_ns != 0)) continue;
    pb::FleetHost& out = known[seen.host];
    out.set_host(seen.host);
    if (!live) out.set_metrics_address(seen.facts.metrics);
    out.set_newest_ns(std::max(out.newest_ns(), seen.newest_ns));
  }
  if (!request.host().empty() && known.empty()) return NoSuchHost(request.host());
  if (!request.host().empty()) {
    const absl::StatusOr<HostView> view = store_.LatestAt(request.host(), kNewestNs, absl::ZeroDuration());
    if (!view.ok() && !absl::IsNotFound(view.status())) return view.status();
    if (view.ok()) FillOwn(view->documents, known[request.host()]);
  }
  pb::FleetHostsReply reply;
  reply.set_instance(instance_);
  reply.mutable_coverage()->set_hosts(static_cast<uint32_t>(known.size()));
  for (auto& [name, host] : known) {
    const absl::Time seen = host.last_seen_ns() == 0 ? absl::InfinitePast() : absl::FromUnixNanos(host.last_seen_ns());
    if (!host.connected()) reply.mutable_coverage()->add_missing(WhyMissing(name, seen));
    reply.add_hosts()->Swap(&host);
  }
  return reply;
}

// What was connected then is what told within a minute before.
absl::StatusOr<pb::FleetHostsReply> Query::HostsAt(const pb::FleetHostsRequest& request) {
  const absl::StatusOr<std::map<std::string, HostNow>> known = Known(request.host(), request.at_ns());
  if (!known.ok()) return known.status();
  if (!request.host().empty() && !known->contains(request.host())) return NoSuchHost(request.host());
  pb::FleetHostsReply reply;
  reply.set_instance(instance_);
  reply.set_at_ns(request.at_ns());
  for (const auto& [name, now] : *known) {
    if (!request.host().empty() && name != request.host()) continue;
    const absl::StatusOr<HostView> then = store_.LatestAt(name, request.at_ns(), kReach);
    if (!then.ok() && !absl::IsNotFound(then.status())) return then.status();
    pb::FleetHost& out = *reply.add_hosts();
    out.set_host(name);
    out.set_connected(then.ok() && !then->paths.empty());
    if (!out.connected()) {
      reply.mutable_coverage()->add_missing(
          absl::StrFormat("%s: nothing is kept of the %s before", name, absl::FormatDuration(kReach)));
      continue;
    }
    for (const PathSample& sample : then->paths) {
      Count(sample.state, out);
      out.set_newest_ns(std::max(out.newest_ns(), sample.time_ns));
    }
    if (!request.host().empty()) FillOwn(then->documents, out);
  }
  reply.mutable_coverage()->set_hosts(static_cast<uint32_t>(reply.hosts_size()));
  return reply;
}

}  // namespace cw::fleet
