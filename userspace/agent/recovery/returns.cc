// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/recovery/returns.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {

void Returns::Step(int64_t now_ns) {
  if (rule_.away() == 0) return;
  std::vector<control::ReturnFlow> flows = mover_.Flows();
  std::erase_if(flows, [this](const control::ReturnFlow& flow) { return !wanted_(flow.pair, flow.key); });
  const auto usable = [this](uint32_t pair, control::ReturnPlace place) { return IsUsable(pair, place); };
  for (const control::ReturnAction& action : rule_.Step(now_ns, flows, usable)) {
    if (mover_.GoBack(action)) Tell(action);
  }
}

// May flows be put there, and is the port still that of the slot.
bool Returns::IsUsable(uint32_t index, control::ReturnPlace place) const {
  const PairState* pair = FindIn(pairs_, index);
  if (pair == nullptr || place.slot >= CW_MAX_SLOTS || (pair->blocked >> place.slot & 1) != 0) return false;
  const uint8_t state = probe::Load(mesh_.shared(index)->slot[place.slot].state);
  const uint16_t port = mesh_.slots(index).port(place.slot);
  return (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) && (place.port == 0 ? port != 0 : port == place.port);
}

void Returns::Tell(const control::ReturnAction& action) {
  const std::string peer = names_.Of(action.flow.dst);
  events_.Log({.type = "return",
               .text = action.take_back
                           ? absl::StrFormat("queue pair to %s qp 0x%x stays where it is: path %d failed again", peer,
                                             action.flow.dqpn, action.to.slot)
                           : absl::StrFormat("queue pair to %s qp 0x%x goes back to path %d, which recovered", peer,
                                             action.flow.dqpn, action.to.slot),
               .flow = action.flow.Id().ToString(),
               .peer = peer,
               .to_slot = action.to.slot,
               .evidence = {{"flows_away", absl::StrCat(rule_.away())}, {"taken_back", action.take_back ? "1" : "0"}}});
}

}  // namespace cw::agent
