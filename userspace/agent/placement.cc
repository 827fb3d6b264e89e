// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/placement.h"

#include "absl/strings/str_cat.h"

namespace cw::agent {

Deadlines::Place PresentPlace(const cw_tx_flow& flow) {
  if (flow.want_slot != CW_SLOT_NONE) return {.slot = flow.want_slot, .port = flow.want_port};
  return {.slot = flow.port != 0 ? flow.slot : flow.native_slot, .port = flow.port};
}

bool IsOn(const cw_tx_flow& flow, const Deadlines::Place& place) {
  const uint8_t slot = flow.port != 0 ? flow.slot : flow.native_slot;
  return place.slot != CW_SLOT_NONE && place.port != 0 ? slot == place.slot : flow.port == place.port;
}

std::string WayOfMove(uint8_t from, uint8_t to, uint16_t port) {
  const auto name = [](uint8_t slot) {
    return slot == CW_SLOT_NONE ? std::string("an unprobed path") : absl::StrCat("path ", slot);
  };
  const bool same = from == to && to != CW_SLOT_NONE;
  const std::string way =
      same ? absl::StrCat(" to another port of ", name(to)) : absl::StrCat(" from ", name(from), " to ", name(to));
  return absl::StrCat(way, ", udp-port ", port);
}

uint8_t PendingSlot(const cw_tx_flow& flow) {
  if (flow.want_slot == CW_SLOT_NONE) return CW_SLOT_NONE;
  const bool by_its_port = flow.port == flow.want_port;
  const bool by_native = flow.port == 0 && flow.native_slot == flow.want_slot;
  return by_its_port || by_native ? uint8_t{CW_SLOT_NONE} : flow.want_slot;
}

std::string UndoOfSet(const cw_tx_flow& before, const std::string& id) {
  if ((before.flags & CW_STEER_MANUAL) == 0) return absl::StrCat("steer clear ", id);
  const Deadlines::Place place = PresentPlace(before);
  if (place.port == 0) return absl::StrCat("steer set ", id, " --native");
  if (place.slot == CW_SLOT_NONE) return absl::StrCat("steer set ", id, " --port ", place.port);
  return absl::StrCat("steer set ", id, " --path ", place.slot);
}

std::string UndoOfLock(uint8_t flags_before, uint8_t flags_after, const std::string& id) {
  constexpr uint8_t kLocks = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED;
  if ((flags_before & kLocks) == (flags_after & kLocks)) return "";
  if ((flags_before & CW_STEER_HARD_LOCKED) != 0) return absl::StrCat("steer lock --hard ", id);
  if ((flags_before & CW_STEER_LOCKED) != 0) return absl::StrCat("steer lock ", id);
  return absl::StrCat("steer lock --none ", id);
}

Deadlines::Place PlaceAfter(const std::optional<Deadlines::Place>& before, uint8_t native_slot,
                            const std::function<std::optional<uint8_t>(uint16_t)>& slot_of_port,
                            const std::function<bool(uint8_t)>& is_dead) {
  const Deadlines::Place native = {.slot = native_slot, .port = 0};
  if (!before || before->port == 0) return native;
  const std::optional<uint8_t> slot = slot_of_port(before->port);
  if (!slot || is_dead(*slot)) return native;
  return {.slot = *slot, .port = before->port};
}

}  // namespace cw::agent
