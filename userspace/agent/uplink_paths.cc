// SPDX-License-Identifier: Apache-2.0
// Paths as the uplink packs them.
#include "userspace/agent/agent.h"
#include "userspace/agent/view_words.h"
#include "userspace/uplink/seen.h"

namespace cw::agent {

// Both directions of each slot: replies ride on the peer's slot of this number, whose hops only the peer knows.
void Agent::AddPathsSeen(PairState& pair, int64_t now_ns, int seconds, std::vector<uplink::PathSeen>& out) {
  const probe::SlotTable& slots = engine_->mesh().slots(pair.index);
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint16_t port = slots.port(s);
    if (port == 0) continue;
    SlotState& slot = pair.slot[s];
    uplink::PathSeen seen{.local = pair.key.local, .remote = pair.key.remote, .peer = pair.peer, .udp_port = port};
    seen.state = StateOf(probe::Load(dataplane_->pairs()[pair.index].slot[s].state));
    const bool paused = slot.silence && slot.silence->watch.verdict() == control::Silence::kPaused;
    if (seen.state == api::v1::PATH_STATE_DEAD && paused) seen.state = api::v1::PATH_STATE_PAUSED;
    const auto fill = [&](const telemetry::PathDelay& delay) {
      telemetry::DelayWindow window = delay.Window(now_ns, seconds);
      seen.base_ns = delay.BaseNs() == INT64_MAX ? 0 : static_cast<uint64_t>(std::max<int64_t>(0, delay.BaseNs()));
      seen.queue = std::move(window.queueing);
      seen.sent = window.sent;
      seen.answered = window.answered;
    };
    fill(slot.forward);
    if (const probe::Hops* hops = discovery == nullptr ? nullptr : discovery->HopsOf(port); hops != nullptr)
      seen.hops = std::vector<Addr>(hops->begin(), hops->end());
    // A path that is cut ends where the cut is: its last answer is nobody's neighbour.
    if (seen.hops && !discovery->EndsAtLastSwitch(port)) seen.hops->emplace_back();
    out.push_back(seen);
    seen.reverse = true;
    seen.hops.reset();
    fill(slot.reverse);
    seen.sent = std::max(seen.sent, seen.answered);
    if (seen.queue.count() > 0) out.push_back(std::move(seen));
  }
}

absl::StatusOr<std::vector<uplink::PathSeen>> Agent::PathsSeen(int seconds) {
  return loop_->Call<std::vector<uplink::PathSeen>>([this, seconds]() -> absl::StatusOr<std::vector<uplink::PathSeen>> {
    std::vector<uplink::PathSeen> seen;
    const int64_t now_ns = MonotonicNs();
    for (auto& [index, pair] : pairs_) AddPathsSeen(*pair, now_ns, seconds, seen);
    return seen;
  });
}

}  // namespace cw::agent
