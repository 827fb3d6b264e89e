// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/ring_second.h"

#include <algorithm>

#include "userspace/model/addr_bytes.h"

namespace cw::uplink {
namespace {

namespace pb = cwfabric::v1;

void AddSamples(const PathSecond& path, const Interval& interval, pb::RingPath& out) {
  int64_t at_us = 0, before_ns = 0;
  for (const PathSecond::Sample& sample : path.samples) {
    // Two arrivals may be seen in the other order: such a one is put where its neighbour is.
    const int64_t us = std::clamp<int64_t>((sample.time_ns - interval.from_ns) / 1000, at_us, INT32_MAX);
    out.add_after_us(static_cast<uint32_t>(us - at_us));
    out.add_delay_ns(sample.delay_ns - before_ns);
    at_us = us;
    before_ns = sample.delay_ns;
  }
  if (path.every > 1) out.set_every(path.every);
}

uint32_t Count32(uint64_t count) { return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX)); }

void AddFlows(absl::Span<const FlowSecond> flows, pb::RingSecond& out) {
  for (const FlowSecond& flow : flows) {
    pb::RingFlow& to = *out.add_flows();
    to.set_flow(flow.flow);
    to.set_peer(flow.peer);
    to.set_udp_port(flow.udp_port);
    to.set_bytes(flow.bytes);
    to.set_packets(flow.packets);
    to.set_cnps(Count32(flow.cnps));
    to.set_naks(Count32(flow.naks));
    to.set_rnr_naks(Count32(flow.rnr_naks));
  }
}

}  // namespace

pb::RingSecond RingSeconds::Begin(const Interval& interval) const {
  pb::RingSecond out;
  out.set_run(run_);
  out.set_from_ns(interval.from_ns);
  out.set_to_ns(std::max(interval.from_ns, interval.to_ns));
  out.set_bound_ns(interval.bound_ns);
  return out;
}

uint32_t RingSeconds::NumberOf(const PathSeen& path, pb::RingSecond& out) {
  const Key key{path.local, path.remote, path.udp_port, path.reverse};
  const auto found = numbers_.find(key);
  if (found == numbers_.end() && numbers_.size() >= BatchBuilder::kMostPaths) return 0;
  const uint32_t number = found != numbers_.end()
                              ? found->second
                              : numbers_.emplace(key, static_cast<uint32_t>(numbers_.size() + 1)).first->second;
  pb::RingName name;
  name.set_path(number);
  name.set_local(AddressBytes(path.local));
  name.set_remote(AddressBytes(path.remote));
  name.set_peer(path.peer);
  name.set_udp_port(path.udp_port);
  name.set_reverse(path.reverse);
  name.set_hops_known(path.hops.has_value());
  if (path.hops) {
    for (const Addr& hop : *path.hops) name.add_hops(AddressBytes(hop));
  }
  std::string now = name.SerializeAsString();
  std::string& told = told_[number];
  if (now == told) return number;
  told = std::move(now);
  *out.add_names() = std::move(name);
  return number;
}

void RingSeconds::Add(const PathSecond& path, const Interval& interval, pb::RingSecond& out) {
  const uint32_t number = NumberOf(path.path, out);
  if (number == 0) return;
  pb::RingPath& to = *out.add_paths();
  to.set_path(number);
  if (path.path.state != pb::PATH_STATE_UP) to.set_state(static_cast<pb::PathState>(path.path.state));
  const auto base_ns = static_cast<int64_t>(path.path.base_ns);
  if (base_ns > 0) to.set_queue(PackOf(path.delay.Above(base_ns), BatchBuilder::kFloorNs).Pack());
  to.set_base_ns(path.path.base_ns);
  to.set_sent(Count32(path.path.known));
  to.set_answered(Count32(path.path.known - path.path.lost));
  AddSamples(path, interval, to);
}

absl::Status RingSeconds::Write(const SecondSeen& seen, absl::Span<const pb::Event> events, const Put& put) {
  const absl::Span<const PathSecond> all(seen.paths);
  absl::Status status;
  for (size_t at = 0; at == 0 || at < all.size(); at += kPathsAtOnce) {
    // A second time where it begins a block, whose names are not told yet.
    for (int pass = 0; pass < 2; ++pass) {
      pb::RingSecond out = Begin(seen.interval);
      for (const PathSecond& path : all.subspan(at, kPathsAtOnce)) Add(path, seen.interval, out);
      if (at == 0) AddFlows(seen.flows, out);
      for (size_t e = 0, bytes = 0; at == 0 && e < events.size() && bytes < kMostEventBytes; ++e) {
        *out.add_events() = events[e];
        bytes += events[e].ByteSizeLong();
      }
      status = put(out.SerializeAsString());
      if (!absl::IsOutOfRange(status)) break;
      Anew();
    }
    if (!status.ok()) {
      Anew();  // names that are not in the file
      return status;
    }
  }
  return status;
}

}  // namespace cw::uplink
