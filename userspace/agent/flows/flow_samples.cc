// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/flow_samples.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace cw::agent {
namespace {

constexpr size_t kSamplesHeld = 4096;  // halves that wait for the next message to their sender

}  // namespace

void FlowSamples::OnRecord(const cw_ev_sample& sample) {
  const FlowKey key = FromMap(sample.key);
  if (sample.is_tx != 0) {
    matcher_.AddSent({.flow = key, .psn = sample.psn, .is_resp = sample.is_resp != 0}, static_cast<int64_t>(sample.ns),
                     sample.slot, sample.duplicate != 0);
    return;
  }
  const std::optional<uint32_t> index = mesh_.Find({.local = key.dst, .remote = key.src});
  PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (pair == nullptr || pair->samples_out.size() >= kSamplesHeld) return;
  pair->samples_out.push_back({.dqpn = key.dqpn,
                               .psn = sample.psn,
                               .is_resp = sample.is_resp != 0,
                               .duplicate = sample.duplicate != 0,
                               .t_rx_ns = static_cast<int64_t>(sample.ns)});
}

void FlowSamples::OnBatch(const PairState& pair, const probe::SampleBatch& batch) {
  if (!pair.estimate.settled) return;
  const int64_t now_offset_ns = pair.clock->OffsetAt(local_.NowNs());
  for (const probe::SampleHalf& half : batch.samples) {
    // The line is in our time: first a rough conversion to look it up, then the exact one.
    const int64_t rx_ns = half.t_rx_ns - pair.clock->OffsetAt(half.t_rx_ns - now_offset_ns);
    matcher_.AddReceived({.flow = {.src = pair.key.local, .dst = pair.key.remote, .dqpn = half.dqpn},
                          .psn = half.psn,
                          .is_resp = half.is_resp},
                         rx_ns, half.duplicate);
  }
}

void FlowSamples::Send(PairState& pair) {
  for (size_t at = 0; at < pair.samples_out.size(); at += probe::kMaxSamplesPerMessage) {
    const auto first = pair.samples_out.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t count = std::min(probe::kMaxSamplesPerMessage, pair.samples_out.size() - at);
    mail_.Send(pair.index, probe::SampleBatch{.samples = {first, first + static_cast<std::ptrdiff_t>(count)}});
  }
  pair.samples_out.clear();
}

void FlowSamples::Match() {
  const int64_t now_ns = monotonic_.NowNs();
  matcher_.TakeMatches(local_.NowNs(), [&](const telemetry::SampleMatcher::Match& match) {
    const auto at = flows_.sent.find(match.key.flow);
    if (at == flows_.sent.end() || match.OwdNs() <= 0) return;
    FlowEntry& flow = at->second;
    flow.AddDelay(now_ns, flow.SlotOfPackets(acts_()), match.OwdNs());
  });
}

void FlowSamples::CountLost(uint64_t lost) {
  if (lost == lost_) return;
  lost_ = lost;
  matcher_.VoidOpen();
}

}  // namespace cw::agent
