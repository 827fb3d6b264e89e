// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/batch_builder.h"

#include <algorithm>
#include <cmath>

#include "userspace/model/addr_bytes.h"
#include "userspace/model/hops_id.h"

namespace cw::uplink {
namespace {

// Nearly all paths of a host sent equally many probes.
uint32_t UsualSent(absl::Span<const wire::PathRecord> records, const std::vector<uint64_t>& sent) {
  absl::flat_hash_map<uint64_t, size_t> counts;
  for (size_t i = 0; i < records.size(); ++i) ++counts[sent[i]];
  const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second, a.first) < std::pair(b.second, b.first);
  });
  return most == counts.end() ? 0 : static_cast<uint32_t>(std::min<uint64_t>(most->first, INT32_MAX));
}

}  // namespace

std::string BytesOf(const Addr& addr) {
  if (addr.is_zero()) return "";
  const char* bytes = reinterpret_cast<const char*>(addr.bytes.data());
  return addr.is_v4() ? std::string(bytes + 12, 4) : std::string(bytes, 16);
}

// Delays near the floor are mostly the clocks' noise: to half a step of a quarter of the floor is near enough, until
// that is finer than a bucket.
uint32_t Coarse(uint32_t index, uint64_t floor_ns) {
  constexpr double kBucketWidth = 0.044;  // of its middle
  const double middle = PackedSketch::MiddleNs(index), step = static_cast<double>(floor_ns) / 4;
  if (step <= middle * kBucketWidth) return index;
  return PackedSketch::IndexOf(static_cast<uint64_t>((std::floor(middle / step) + 0.5) * step));
}

PackedSketch PackOf(const telemetry::Sketch& sketch, uint64_t floor_ns) {
  PackedSketch out;
  if (sketch.count() == 0) return out;
  const uint64_t max = sketch.max_ns() <= 0 ? 0 : static_cast<uint64_t>(sketch.max_ns());
  out.max_ns = max < floor_ns ? 0 : max;
  const uint32_t last = PackedSketch::IndexOf(out.max_ns), floor = PackedSketch::IndexOf(floor_ns);
  const auto add = [&](uint32_t index, uint64_t count) {
    if (count == 0) return;
    if (out.buckets.empty() || out.buckets.back().index != index) out.buckets.push_back({index, 0});
    uint32_t& sum = out.buckets.back().count;
    sum = static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, sum + count));
  };
  // Above() rounds to middles of buckets: what lies beyond the exact maximum by that is put where the maximum is.
  for (const telemetry::Sketch::Entry& entry : sketch.entries()) {
    const uint32_t index =
        entry.bucket == telemetry::Sketch::kBelow ? 0 : static_cast<uint32_t>(std::max(0, entry.bucket + 2));
    add(index < floor ? 0 : std::min(Coarse(index, floor_ns), last), entry.count);
  }
  if (out.buckets.back().index < last) {
    if (--out.buckets.back().count == 0) out.buckets.pop_back();
    add(last, 1);
  }
  return out;
}

wire::Batch BatchBuilder::Begin(const Interval& interval) {
  wire::Batch batch;
  batch.set_host(host_);
  batch.set_run(run_);
  batch.set_sequence(++sequence_);
  batch.set_from_ns(interval.from_ns);
  batch.set_to_ns(std::max(interval.from_ns, interval.to_ns));
  batch.set_bound_ns(interval.bound_ns);
  return batch;
}

std::vector<wire::Batch> BatchBuilder::Events(absl::Span<const wire::Event> events, const Interval& interval) {
  std::vector<wire::Batch> batches;
  size_t bytes = 0;
  for (const wire::Event& event : events) {
    const size_t size = event.ByteSizeLong();
    if (batches.empty() || bytes + size > kMostEventBytes) {
      batches.push_back(Begin(interval));
      bytes = 0;
    }
    bytes += size;
    wire::FleetEvent* out = batches.back().add_events();
    *out->mutable_event() = event;
    out->set_time_ns(event.time_unix_ns());
    out->set_bound_ns(interval.bound_ns);
  }
  return batches;
}

uint64_t BatchBuilder::Tell(const std::vector<Addr>& hops, wire::Definitions& definitions) {
  const uint64_t id = HopsId(hops);
  Hops& known = hops_[id];
  if (!known.told) {
    known.list.set_id(id);
    known.list.clear_address();
    for (const Addr& hop : hops) known.list.add_address(AddressBytes(hop));
    *definitions.add_hop_lists() = known.list;
    known.told = true;
  }
  return id;
}

uint32_t BatchBuilder::NumberOf(const PathSeen& path, wire::Definitions& definitions) {
  const Key key{path.local, path.remote, path.udp_port, path.reverse};
  auto it = paths_.find(key);
  if (it == paths_.end()) {
    if (paths_.size() >= kMostPaths) {
      ++left_out_;
      return 0;
    }
    it = paths_.emplace(key, Named{}).first;
    wire::PathName& name = it->second.name;
    name.set_path(static_cast<uint32_t>(paths_.size()));
    name.set_local(AddressBytes(path.local));
    name.set_remote(AddressBytes(path.remote));
    name.set_udp_port(path.udp_port);
    name.set_reverse(path.reverse);
  }
  Named& named = it->second;
  const uint64_t hops = path.hops ? Tell(*path.hops, definitions) : 0;
  if (named.name.hops() != hops || named.name.peer() != path.peer) {
    named.name.set_hops(hops);
    named.name.set_peer(path.peer);
    named.told = false;
  }
  if (!named.told) *definitions.add_paths() = named.name;
  named.told = true;
  return named.name.path();
}

uint32_t BatchBuilder::FindPath(const Addr& local, const Addr& remote, uint16_t udp_port) const {
  const auto found = paths_.find(Key{local, remote, udp_port, false});
  return found == paths_.end() ? 0 : found->second.name.path();
}

wire::Batch BatchBuilder::Detail(absl::Span<const PathSeen> paths, const wire::Inventory& inventory,
                                 const wire::ClockState& clock, const Interval& interval) {
  wire::Batch batch = Begin(interval);
  wire::Definitions definitions;
  std::vector<wire::PathRecord> records;
  std::vector<uint64_t> sent_by, counts;
  const auto size_known = [](const PathSeen& path) { return path.full_size || path.largest_bytes > 0; };
  batch.set_sizes_asked(std::any_of(paths.begin(), paths.end(), size_known));
  for (const PathSeen& path : paths) {
    const uint32_t number = NumberOf(path, definitions);
    if (number == 0) continue;
    const PackedSketch queue = PackOf(path.queue, kFloorNs);
    wire::PathRecord record;
    record.set_path(number);
    if (path.state != wire::PATH_STATE_UP) record.set_state(static_cast<wire::PathState>(path.state));
    record.set_queue(queue.Pack());
    record.set_base_ns(path.base_ns);
    // Of the newest samples it is not settled yet what arrived with them.
    const uint64_t sent = std::min<uint64_t>(INT32_MAX, std::max(path.known, queue.Count()));
    record.set_lost(static_cast<uint32_t>(std::min(path.lost, sent)));
    record.set_silent_ms(static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, path.silent_ms)));
    record.set_heard(path.heard);
    record.set_largest_bytes(path.largest_bytes);
    record.set_size_unknown(batch.sizes_asked() && !path.reverse && !size_known(path));
    records.push_back(std::move(record));
    sent_by.push_back(sent);
    counts.push_back(queue.Count());
  }
  const uint32_t usual = UsualSent(records, sent_by);
  for (size_t i = 0; i < records.size(); ++i) {
    // Of how many nothing was lost is no matter of a few.
    const auto more = static_cast<int64_t>(sent_by[i]) - usual;
    const bool about = records[i].lost() == 0 && 10 * std::abs(more) <= int64_t{usual} && counts[i] <= usual;
    records[i].set_sent_more(about ? 0 : static_cast<int32_t>(more));
    *batch.add_paths() = std::move(records[i]);
  }
  batch.set_usual_sent(usual);
  batch.set_usual_floor_ns(kFloorNs);
  if (definitions.ByteSizeLong() > 0) *batch.mutable_definitions() = std::move(definitions);
  if (std::string now = inventory.SerializeAsString(); now != inventory_) {
    *batch.mutable_inventory() = inventory;
    inventory_ = std::move(now);
  }
  if (std::string now = clock.SerializeAsString(); now != clock_) {
    *batch.mutable_clock() = clock;
    clock_ = std::move(now);
  }
  return batch;
}

void BatchBuilder::DefineAgain() {
  for (auto& [key, named] : paths_) named.told = false;
  for (auto& [id, hops] : hops_) hops.told = false;
  inventory_.clear();
}

wire::Definitions BatchBuilder::Known() const {
  wire::Definitions all;
  for (const auto& [id, hops] : hops_) *all.add_hop_lists() = hops.list;
  for (const auto& [key, named] : paths_) *all.add_paths() = named.name;
  return all;
}

}  // namespace cw::uplink
