// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/live/live_picture.h"

#include "absl/hash/hash.h"
#include "userspace/fleet/live/host_paths.h"

namespace cw::fleet {
namespace {

constexpr int64_t kFabricEveryNs = 5'000'000'000, kHopsEveryNs = 2'000'000'000;
constexpr int64_t kAgeEveryNs = 60'000'000'000;
constexpr size_t kMostHopLists = 2'000'000;
constexpr char kNoRoomForHops[] =
    "hosts reported more paths than the service has room for: the hops of new ones are not known; restart it";

}  // namespace

// Reverse paths are left out: hosts report neither their hops nor whether they are dead; the peer reports both.
void LivePicture::Copy(const LiveHost& live, absl::Time now) {
  Host& host = hosts_[live.host];
  host.told.connected = live.connected;
  host.told.last_seen_ns = absl::ToUnixNanos(live.last_seen);
  host.work = live.work;
  if (host.run == live.run && host.batches == live.batches) return;
  host.run = live.run;
  host.batches = live.batches;
  host.told = HostEvidenceOf(live, now);
  host.paths = PathEvidenceOf(live);
  host.arrivals = ArrivalsOf(live);
  host.lacks_hops = true;
}

const std::vector<Addr>* LivePicture::HopsOf(uint64_t id) const {
  const auto known = hops_.find(id);
  return known == hops_.end() ? nullptr : &known->second;
}

void LivePicture::FillKnown(Host& host, int64_t now_ns) {
  host.lacks_hops = false;
  for (PathEvidence& path : host.paths) {
    if (path.hops_id == 0 || path.hops != nullptr) continue;
    path.hops = HopsOf(path.hops_id);
    host.lacks_hops |= path.hops == nullptr;
    whole_hops_.Complete(path, now_ns);  // once: what it puts in place has no cut any more
  }
}

absl::Status LivePicture::FillHops(const std::string& name, Host& host, int64_t now_ns) {
  if (!host.lacks_hops) return absl::OkStatus();
  FillKnown(host, now_ns);
  if (!host.lacks_hops || now_ns - host.asked_ns < kHopsEveryNs) return absl::OkStatus();
  host.asked_ns = now_ns;
  // Each by its name: a host may have reported far more lists than its paths take.
  std::set<uint64_t> lacking;
  for (const PathEvidence& path : host.paths) {
    if (path.hops_id != 0 && path.hops == nullptr) lacking.insert(path.hops_id);
  }
  for (const uint64_t id : lacking) {
    if (hops_.size() >= kMostHopLists) return absl::ResourceExhaustedError(kNoRoomForHops);
    const absl::StatusOr<HopList> list = store_.Hops(name, id);
    if (list.ok()) hops_.try_emplace(id, list->hops);
  }
  FillKnown(host, now_ns);
  return absl::OkStatus();
}

bool LivePicture::LookAtFabric(Picture& picture) {
  uint64_t seen = 1;
  for (const PathEvidence& path : picture.paths) {
    if (path.hops != nullptr) seen += absl::HashOf(path.source, path.destination, path.hops_id);
  }
  for (const HostEvidence& host : picture.hosts) {
    for (const NicFact& nic : host.nics) seen += absl::HashOf(host.name, nic.name, nic.address);
  }
  // Places of hosts are part of what is made of it.
  for (size_t h = 0; h < picture.hosts.size(); ++h) seen += absl::HashOf(h, picture.hosts[h].name);
  const bool first = fabric_ == 0;
  // Traces to a NIC that was moved count again, though nothing changes.
  const int64_t settled_ns = nic_places_.settled_ns() + NicPlaces::kSameReportNs;
  const bool settled = fabric_ns_ < settled_ns && picture.now_ns >= settled_ns;
  const bool other = settled || (seen != seen_fabric_ && (first || picture.now_ns - fabric_ns_ >= kFabricEveryNs));
  if (other) {
    topology_ = BuildTopology(TracesOf(picture.paths), file_, nic_places_);
    wiring_ = CompareWiring(topology_, file_);
    seen_fabric_ = seen;
    fabric_ns_ = picture.now_ns;
    ++fabric_;
  }
  picture.topology = &topology_;
  picture.wiring = &wiring_;
  picture.fabric = absl::HashOf(fabric_, picture.hosts.size());
  return other;
}

absl::Status LivePicture::AddPaths(Picture& picture, std::set<Addr> departed) {
  if (picture.now_ns - aged_ns_ > kAgeEveryNs) {
    whole_hops_.Age(picture.now_ns);
    aged_ns_ = picture.now_ns;
  }
  for (const auto& [name, host] : hosts_) {
    for (const NicFact& nic : host.told.nics) departed.erase(nic.address);  // somebody has it again
  }
  absl::Status status;
  for (auto& [name, host] : hosts_) {
    status.Update(FillHops(name, host, picture.now_ns));
    const auto place = static_cast<uint32_t>(picture.hosts.size());
    picture.hosts.push_back(host.told);
    if (const auto rack = racks_.find(name); rack != racks_.end()) picture.hosts.back().rack = rack->second;
    picture.arrivals.insert(picture.arrivals.end(), host.arrivals.begin(), host.arrivals.end());
    for (PathEvidence& path : host.paths) {
      path.host = place;
      if (departed.empty() || !departed.contains(path.destination)) picture.paths.push_back(path);
    }
  }
  return status;
}

}  // namespace cw::fleet
