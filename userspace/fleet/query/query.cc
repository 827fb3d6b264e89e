// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/query.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "userspace/control/drain.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/query/host_event.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

void FillPath(const SeenPath& seen, pb::FleetPath& out) {
  const PathSample& s = seen.sample;
  out.set_host(seen.host);
  out.set_local(s.key.local.ToString());
  out.set_remote(s.key.remote.ToString());
  out.set_udp_port(s.key.udp_port);
  out.set_reverse(s.key.reverse);
  out.set_state(static_cast<pb::PathState>(s.state));
  if (seen.hops != nullptr) {
    for (const Addr& hop : *seen.hops) out.add_hops(hop.is_zero() ? "*" : hop.ToString());
  }
  out.set_base_ns(s.base_ns);
  out.set_queue_p50_ns(static_cast<uint64_t>(s.queue.QuantileNs(0.5)));
  out.set_queue_p99_ns(static_cast<uint64_t>(s.queue.QuantileNs(0.99)));
  out.set_queue_max_ns(s.queue.max_ns);
  out.set_sent(s.sent);
  out.set_lost(s.lost);
  out.set_time_ns(s.time_ns);
}

}  // namespace

std::string WhyMissing(const std::string& host, absl::Time last_seen) {
  if (last_seen == absl::InfinitePast()) return absl::StrCat(host, ": not connected since the service began");
  return absl::StrFormat("%s: not connected since %s", host,
                         absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", last_seen, absl::UTCTimeZone()));
}

absl::Status NoSuchHost(const std::string& host) {
  return absl::NotFoundError(absl::StrCat("the fleet service knows no host ", host, "; see cwctl fleet hosts"));
}

absl::StatusOr<std::map<std::string, Query::HostNow>> Query::Known(const std::string& wanted, int64_t at_ns) {
  std::map<std::string, HostNow> known;
  each_host_([&](const LiveHost& host) {
    HostNow& now = known[host.host];
    now = {.connected = host.connected, .last_seen = host.last_seen};
    if (at_ns != 0 || !host.connected || (!wanted.empty() && wanted != host.host)) return;
    now.paths.reserve(host.paths.size());
    for (const auto& [key, sample] : host.paths) now.paths.push_back(sample);
  });
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& seen : *kept) {
    const bool removed = seen.facts.removed_ns != 0 && (at_ns == 0 || at_ns >= seen.facts.removed_ns);
    if (!removed) known.try_emplace(seen.host);
  }
  return known;
}

absl::StatusOr<pb::Coverage> Query::CoverageNow(const std::string& only) {
  struct Seen {
    bool connected = false;
    absl::Time last = absl::InfinitePast();
  };
  std::map<std::string, Seen> known;
  each_host_([&](const LiveHost& host) { known[host.host] = {host.connected, host.last_seen}; });
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& host : *kept) {
    if (host.facts.removed_ns == 0) known.try_emplace(host.host);
  }
  pb::Coverage coverage;
  for (const auto& [name, seen] : known) {
    if (!only.empty() && name != only) continue;
    coverage.set_hosts(coverage.hosts() + 1);
    if (!seen.connected) coverage.add_missing(WhyMissing(name, seen.last));
  }
  return coverage;
}

// Findings are made of what hosts tell: who was silent is missing.
absl::StatusOr<pb::Coverage> Query::CoverageAt(int64_t at_ns) {
  const absl::StatusOr<std::map<std::string, HostNow>> known = Known("", at_ns);
  if (!known.ok()) return known.status();
  const absl::StatusOr<std::vector<std::string>> told = store_.TellersAt(at_ns);
  if (!told.ok()) return told.status();
  const std::set<std::string> tellers(told->begin(), told->end());
  pb::Coverage coverage;
  coverage.set_hosts(static_cast<uint32_t>(known->size()));
  for (const auto& [name, host] : *known) {
    if (!tellers.contains(name)) coverage.add_missing(absl::StrCat(name, ": nothing is kept of that time"));
  }
  return coverage;
}

absl::StatusOr<Query::View> Query::Look(const std::string& wanted, int64_t at_ns) {
  absl::StatusOr<std::map<std::string, HostNow>> known = Known(wanted, at_ns);
  if (!known.ok()) return known.status();
  if (!wanted.empty() && !known->contains(wanted)) return NoSuchHost(wanted);
  View view;
  view.coverage.set_hosts(wanted.empty() ? static_cast<uint32_t>(known->size()) : 1);
  for (auto& [name, host] : *known) {
    if (!wanted.empty() && name != wanted) continue;
    std::vector<PathSample> paths = std::move(host.paths);
    if (at_ns == 0) {
      if (!host.connected) view.coverage.add_missing(WhyMissing(name, host.last_seen));
      if (!host.connected) continue;
    } else {
      absl::StatusOr<HostView> then = store_.LatestAt(name, at_ns, kReach);
      if (!then.ok() && !absl::IsNotFound(then.status())) return then.status();
      if (then.ok()) paths = std::move(then->paths);
      if (paths.empty())
        view.coverage.add_missing(
            absl::StrFormat("%s: nothing is kept of the %s before", name, absl::FormatDuration(kReach)));
    }
    std::set<uint64_t> ids;
    for (const PathSample& sample : paths) ids.insert(sample.hops);
    const absl::StatusOr<std::shared_ptr<const Lists>> lists = hops_.Of(name, ids, absl::Now());
    if (!lists.ok()) return lists.status();
    view.lists.push_back(*lists);
    for (PathSample& sample : paths) {
      const auto hops = (*lists)->find(sample.hops);
      view.paths.push_back({name, std::move(sample), hops == (*lists)->end() ? nullptr : &hops->second});
    }
  }
  return view;
}

absl::StatusOr<std::vector<Query::WhoCrosses>> Query::Crossing(const std::vector<std::vector<Addr>>& lists) {
  struct Way {
    uint64_t hops = 0;
    Addr local, remote;
  };
  std::vector<WhoCrosses> crossing(lists.size());
  const auto look = [&](const std::string& host, const Lists& known, const Way& way) {
    const auto found = known.find(way.hops);
    const absl::Span<const Addr> hops = found == known.end() ? absl::Span<const Addr>() : found->second;
    for (size_t i = 0; i < lists.size(); ++i) {
      WhoCrosses& who = crossing[i];
      if (who.hosts.contains(host) && who.strangers.contains(way.remote)) continue;
      const auto crosses = [&](const Addr& address) {
        return control::CrossesHop(hops, way.remote, address) != control::Crosses::kNo;
      };
      const bool there = std::any_of(lists[i].begin(), lists[i].end(), crosses);
      if (there) who.hosts.insert(host);
      // What is sent to a NIC that is drained comes from it, too.
      if (there || std::find(lists[i].begin(), lists[i].end(), way.local) != lists[i].end())
        who.strangers.try_emplace(way.remote, host);
    }
  };
  // Those that name lists which were not read yet: the store is not asked while streams are held up.
  std::map<std::string, std::vector<Way>> later;
  std::set<Addr> known_nics;
  const Lists none;
  each_host_([&](const LiveHost& host) {
    const std::shared_ptr<const Lists> cached = hops_.Cached(host.host);
    const Lists& known = cached == nullptr ? none : *cached;
    for (const LiveHost::Nic& nic : host.nics) known_nics.insert(nic.address);
    for (const auto& [key, sample] : host.paths) {
      if (key.reverse) continue;
      known_nics.insert(key.local);
      const Way way{sample.hops, key.local, key.remote};
      if (way.hops == 0 || known.contains(way.hops)) {
        look(host.host, known, way);
      } else {
        later[host.host].push_back(way);
      }
    }
  });
  for (const auto& [host, ways] : later) {
    std::set<uint64_t> ids;
    for (const Way& way : ways) ids.insert(way.hops);
    const absl::StatusOr<std::shared_ptr<const Lists>> known = hops_.Of(host, ids, absl::Now());
    if (!known.ok()) return known.status();
    for (const Way& way : ways) look(host, **known, way);
  }
  for (WhoCrosses& who : crossing)
    std::erase_if(who.strangers, [&](const auto& stranger) { return known_nics.contains(stranger.first); });
  return crossing;
}

absl::StatusOr<pb::FleetPathsReply> Query::Paths(const pb::FleetPathsRequest& request) {
  absl::StatusOr<View> view = Look(request.host(), request.at_ns());
  if (!view.ok()) return view.status();
  pb::FleetPathsReply reply;
  *reply.mutable_coverage() = std::move(view->coverage);
  for (const SeenPath& path : view->paths) FillPath(path, *reply.add_paths());
  return reply;
}

absl::StatusOr<pb::FleetTopologyReply> Query::Topology(const pb::FleetTopologyRequest& request) {
  absl::StatusOr<View> view = Look(request.host(), request.at_ns());
  if (!view.ok()) return view.status();
  pb::FleetTopologyReply reply = MakeTopologyReply(view->paths, file_);
  reply.set_host(request.host());
  *reply.mutable_coverage() = std::move(view->coverage);
  return reply;
}

absl::StatusOr<Query::FabricNow> Query::Fabric() {
  const absl::StatusOr<View> view = Look("", 0);
  if (!view.ok()) return view.status();
  return FabricNow{.topology = MakeTopologyReply(view->paths, file_),
                   .switches = SwitchesNoHostSplits(view->paths, file_)};
}

absl::StatusOr<pb::FleetFindingsReply> Query::Findings(const pb::FleetFindingsRequest& request) {
  FindingQuery query;
  if (request.limit() != 0) query.limit = std::min(request.limit(), kMostEvents);
  if (!request.id().empty()) {
    const std::optional<uint64_t> id = ParseId(request.id());
    if (!id) return absl::InvalidArgumentError("an id has up to 16 hexadecimal digits; see cwctl fleet findings --all");
    query.id = *id;
  } else if (!request.all()) {
    query.at_ns = request.at_ns();
    query.open = request.at_ns() == 0;
  }
  const absl::StatusOr<std::vector<StoredFinding>> findings = store_.Findings(query);
  if (!findings.ok()) return findings.status();
  if (!request.id().empty() && findings->empty())
    return absl::NotFoundError(absl::StrCat("no finding ", request.id(), "; see cwctl fleet findings --all"));
  absl::StatusOr<pb::Coverage> coverage = query.at_ns == 0 ? CoverageNow() : CoverageAt(query.at_ns);
  if (!coverage.ok()) return coverage.status();
  pb::FleetFindingsReply reply;
  *reply.mutable_coverage() = *std::move(coverage);
  for (const StoredFinding& stored : *findings) {
    pb::FleetFinding& out = *reply.add_findings();
    if (!out.ParseFromString(stored.body)) return absl::DataLossError("a finding in the store cannot be read");
    // As it was then, it had not ended.
    if (query.at_ns != 0) out.set_end_ns(0);
  }
  return reply;
}

absl::StatusOr<pb::FleetEventsReply> Query::Events(const pb::FleetEventsRequest& request) {
  EventQuery query{.host = request.host(), .type = request.type(), .after = request.after()};
  if (request.from_ns() != 0) query.from_ns = request.from_ns();
  if (request.to_ns() != 0) query.to_ns = request.to_ns();
  if (request.limit() > kMostEvents)
    return absl::InvalidArgumentError(absl::StrFormat("at most %d events at once; resume with `after`", kMostEvents));
  if (request.limit() != 0) query.limit = request.limit();
  query.newest_first = request.newest_first();
  const absl::StatusOr<EventPage> page = store_.Events(query);
  if (!page.ok()) return page.status();
  absl::StatusOr<pb::Coverage> coverage = CoverageNow(request.host());
  if (!coverage.ok()) return coverage.status();
  pb::FleetEventsReply reply;
  *reply.mutable_coverage() = *std::move(coverage);
  for (const StoredEvent& stored : page->events) *reply.add_events() = MessageOf(stored);
  reply.set_next(page->next);
  return reply;
}

}  // namespace cw::fleet
