// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/ring_recorder.h"

#include <algorithm>
#include <utility>

namespace cw::agent {
namespace {

// Every second one stays; the first is one of them.
void Thin(std::vector<uplink::PathSecond::Sample>& samples) {
  size_t kept = 0;
  for (size_t i = 0; i < samples.size(); i += 2) samples[kept++] = samples[i];
  samples.resize(kept);
}

// A flow that began anew counts from zero.
uint64_t Since(uint64_t& before, uint64_t now) {
  const uint64_t old = std::exchange(before, now);
  return now >= old ? now - old : now;
}

}  // namespace

void RingRecorder::Delay(uint32_t pair, uint8_t slot, bool reverse, int64_t at_ns, int64_t delay_ns) {
  Direction& direction = now_[KeyOf(pair, slot, reverse)];
  direction.delay.Add(delay_ns);
  if (++direction.skipped < direction.every) return;
  direction.skipped = 0;
  if (direction.samples.size() >= 2 * share_) {
    Thin(direction.samples);
    direction.every *= 2;
  }
  direction.samples.push_back({at_ns, delay_ns});
}

void RingRecorder::Fates(uint32_t pair, uint8_t slot, uint32_t known, uint32_t lost) {
  Direction& direction = now_[KeyOf(pair, slot, false)];
  direction.known += known;
  direction.lost += lost;
}

void RingRecorder::AddPath(uplink::PathSeen path, int64_t to_unix_ns, uplink::SecondSeen& out) {
  uplink::PathSecond& second = out.paths.emplace_back();
  second.path = std::move(path);
  const auto found = now_.find(KeyOf(second.path.pair, second.path.slot, second.path.reverse));
  if (found == now_.end()) return;
  Direction& direction = found->second;
  second.path.known = direction.known;
  second.path.lost = direction.lost;
  second.delay = std::move(direction.delay);
  second.every = direction.every;
  second.samples = std::move(direction.samples);
  for (uplink::PathSecond::Sample& sample : second.samples) sample.time_ns += to_unix_ns;
}

void RingRecorder::AddFlows(const FlowBook& flows, const PeerNames& names, uplink::SecondSeen& out) {
  for (auto& [key, counted] : counted_) counted.seen = false;
  for (const auto& [key, flow] : flows.sent) {
    const cw_flow& now = flow.flow();
    const auto [at, first] = counted_.try_emplace(key);
    Counted& before = at->second;
    before.seen = true;
    // CNPs that slow it come from its receiver: flow.last_cnps. Those of its own record slow the other direction.
    uplink::FlowSecond second{.bytes = Since(before.bytes, now.bytes),
                              .packets = Since(before.packets, now.packets),
                              .cnps = Since(before.cnps, flow.last_cnps),
                              .naks = Since(before.naks, flow.answers.seq_naks),
                              .rnr_naks = Since(before.rnr_naks, flow.answers.rnr_naks)};
    if (first || second.packets == 0) continue;
    second.flow = key.Id().ToString();
    second.peer = names.Of(key.dst);
    second.udp_port = flow.tx.port != 0 ? flow.tx.port : now.sport;
    out.flows.push_back(std::move(second));
  }
  absl::erase_if(counted_, [](const auto& entry) { return !entry.second.seen; });
  const auto more = [](const uplink::FlowSecond& a, const uplink::FlowSecond& b) { return a.bytes > b.bytes; };
  if (out.flows.size() <= kMostFlows) return;
  std::partial_sort(out.flows.begin(), out.flows.begin() + kMostFlows, out.flows.end(), more);
  out.flows.resize(kMostFlows);
}

uplink::SecondSeen RingRecorder::Take(std::vector<uplink::PathSeen> paths, const FlowBook& flows,
                                      const PeerNames& names, const uplink::Interval& interval, int64_t now_ns) {
  uplink::SecondSeen out{.interval = interval};
  out.paths.reserve(paths.size());
  for (uplink::PathSeen& path : paths) AddPath(std::move(path), interval.to_ns - now_ns, out);
  AddFlows(flows, names, out);
  // What is of no path any more goes with it.
  now_.clear();
  share_ = std::clamp(kSamplesPerSecond / 2 / std::max<size_t>(1, out.paths.size()), kLeastOfPath, kMostOfPath);
  return out;
}

}  // namespace cw::agent
