// SPDX-License-Identifier: Apache-2.0
// Back to paths that recovered: control/returns.h says when. Where flows move for balance, the contention rule takes
// what recovered into use.
#include "userspace/control/returns.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

control::ReturnPlace PlaceOf(const FlowEntry& flow) { return {.slot = flow.PathSlot(), .port = flow.tx.port}; }

}  // namespace

void Agent::LeftBadPath(const FlowKey& flow, uint32_t pair, uint8_t from_slot, uint16_t from_port, uint8_t to_slot,
                        uint16_t to_port) {
  returns_->Left(flow, pair, {.slot = from_slot, .port = from_port}, {.slot = to_slot, .port = to_port});
}

void Agent::StepReturns(int64_t now_ns) {
  if (returns_->away() == 0) return;
  std::vector<control::ReturnFlow> flows;
  if (ActsAtAll() && !MayBalance()) {  // otherwise it forgets them all
    for (const auto& [key, flow] : flows_.sent) {
      const bool free = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0;
      flows.push_back({.key = key, .pair = flow.tx.pair, .at = PlaceOf(flow), .free = free, .wish = flow.tx.want_slot});
    }
  }
  const auto usable = [this](uint32_t index, control::ReturnPlace place) {
    const PairState* pair = FindPair(index);
    if (pair == nullptr || place.slot >= CW_MAX_SLOTS || (pair->blocked >> place.slot & 1) != 0) return false;
    const uint8_t state = probe::Load(dataplane_->pairs()[index].slot[place.slot].state);
    const uint16_t port = engine_->mesh().slots(index).port(place.slot);
    return (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) && (place.port == 0 ? port != 0 : port == place.port);
  };
  for (const control::ReturnAction& action : returns_->Step(now_ns, flows, usable)) {
    const uint8_t slot = action.take_back ? uint8_t{CW_SLOT_NONE} : action.to.slot;
    if (!dataplane_->flow_editor().Want(ToMap(action.flow), slot, action.to.port, false).ok()) continue;
    const std::string peer = PeerName(action.flow.dst);
    Log({.type = "return",
         .text = action.take_back ? absl::StrFormat("queue pair to %s qp 0x%x stays where it is: path %d failed again",
                                                    peer, action.flow.dqpn, action.to.slot)
                                  : absl::StrFormat("queue pair to %s qp 0x%x goes back to path %d, which recovered",
                                                    peer, action.flow.dqpn, action.to.slot),
         .flow = action.flow.Id().ToString(),
         .peer = peer,
         .to_slot = action.to.slot,
         .evidence = {{"flows_away", absl::StrCat(returns_->away())}}});
  }
}

}  // namespace cw::agent
