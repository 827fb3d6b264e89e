// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/kernel_mover.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr uint32_t kMuteRounds = 20;

}  // namespace

bool IsMute(const PairState& pair, const probe::Mesh& mesh, uint8_t slot) {
  const cw_pair& shared = *mesh.shared(pair.index);
  if (pair.blind || probe::Load(shared.live_mask) == 0 || mesh.slots(pair.index).is_path(slot)) return false;
  const uint32_t rounds = probe::Load(shared.cur_round) - probe::Load(shared.slot[slot].progress_round);
  return probe::Load(shared.slot[slot].state) == CW_SLOT_NEW && rounds >= kMuteRounds;
}

void KernelMover::OnPathLost(const PathLost& lost) {
  if (lost.cause != LossCause::kDead && lost.act) Leave(lost.pair, lost.slot);
}

std::vector<control::ReturnFlow> KernelMover::Flows() const {
  std::vector<control::ReturnFlow> flows;
  for (const auto& [key, flow] : flows_.sent) {
    flows.push_back({.key = key,
                     .pair = flow.tx.pair,
                     .at = {.slot = flow.PathSlot(), .port = flow.tx.port},
                     .free = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0,
                     .wish = flow.tx.want_slot});
  }
  return flows;
}

bool KernelMover::GoBack(const control::ReturnAction& action) {
  const uint8_t slot = action.take_back ? uint8_t{CW_SLOT_NONE} : action.to.slot;
  return records_.Want(action.flow, slot, action.to.port, false).ok();
}

void KernelMover::LeaveUnwatchedPorts() {
  std::set<uint32_t> pairs;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.port == 0 && flow.PathSlot() == CW_SLOT_NONE) pairs.insert(flow.tx.pair);
  }
  for (const uint32_t index : pairs) {
    const PairState* pair = FindIn(pairs_, index);
    if (pair == nullptr || !pair->active || pair->blind || !asks_.in_motion(index)) continue;
    const int left = Leave(*pair, CW_SLOT_NONE, /*steered_to=*/0);
    if (left == 0) continue;
    events_.Log({.type = "path",
                 .severity = telemetry::Severity::kNotice,
                 .text = absl::StrFormat(
                     "paths to %s change, and no slot is left to watch the ports of %s: put on paths that are watched",
                     pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
                 .peer = pair->peer});
  }
}

void KernelMover::LeaveMutePorts() {
  for (const auto& [index, pair] : pairs_) {
    if (!pair->active) continue;
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (!IsMute(*pair, mesh_, s)) continue;
      const cw_pair& shared = *mesh_.shared(index);
      const cw_slot& slot = shared.slot[s];
      const uint32_t rounds = probe::Load(shared.cur_round) - probe::Load(slot.progress_round);
      const int left = Leave(*pair, s);
      if (left == 0) continue;
      events_.Log(
          {.type = "path",
           .severity = telemetry::Severity::kAlert,
           .text = absl::StrFormat("udp-port %d to %s never answered while other paths did: %s put on others",
                                   probe::Load(slot.port), pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
           .peer = pair->peer,
           .slot = s,
           .evidence = {{"rounds", absl::StrCat(rounds)}}});
    }
  }
}

int KernelMover::Leave(const PairState& pair, uint8_t slot, std::optional<uint16_t> steered_to) {
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  const uint16_t judged = JudgedSlots(*mesh_.shared(pair.index));
  std::array<int, CW_MAX_SLOTS> flows{};
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair.index && flow.PathSlot() < CW_MAX_SLOTS) ++flows[flow.PathSlot()];
  }
  std::vector<uint8_t> targets;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots.is_path(s) && (judged >> s & 1) != 0 && (pair.blocked >> s & 1) == 0) targets.push_back(s);
  }
  int left = 0;
  if (targets.empty()) return left;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair != pair.index || flow.PathSlot() != slot || (flow.tx.flags & CW_STEER_HARD_LOCKED) != 0) continue;
    if (steered_to && flow.tx.port != *steered_to) continue;
    const bool going =
        flow.tx.want_force != 0 && std::find(targets.begin(), targets.end(), flow.tx.want_slot) != targets.end();
    if (going) continue;  // with its next packet
    const uint8_t to =
        *std::min_element(targets.begin(), targets.end(), [&](uint8_t a, uint8_t b) { return flows[a] < flows[b]; });
    ++flows[to];
    if (!records_.Want(key, to, slots.port(to), /*force=*/true).ok()) continue;
    ++left;
    if (!steered_to) asks_.left(key, pair.index, {slot, flow.tx.port}, {to, slots.port(to)});
  }
  return left;
}

}  // namespace cw::agent
