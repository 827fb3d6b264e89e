// SPDX-License-Identifier: Apache-2.0
//
// What a placement by hand comes to: whether the flow is there already, what undoes it, where it goes back to. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "maps/abi.h"
#include "userspace/agent/deadlines.h"

namespace cw::agent {

// Where a flow is, or waits to go to.
Deadlines::Place PresentPlace(const cw_tx_flow& flow);

// On that path, by whatever port; where the path is not known, on that port.
bool IsOn(const cw_tx_flow& flow, const Deadlines::Place& place);

// " from path 1 to path 2, udp-port 50000", behind "was moved"; another port of the same path is no other path.
std::string WayOfMove(uint8_t from, uint8_t to, uint16_t port);

// The path that it waits to go to; CW_SLOT_NONE: none, or it has come there by another way (a dead path left, its
// native port's path found to be the same), so that the kernel, which looks at ports and at its next packet, never
// moves it.
uint8_t PendingSlot(const cw_tx_flow& flow);

// The cwctl arguments that put it where it was before it was set. Whoever was not placed by hand goes back by clear.
std::string UndoOfSet(const cw_tx_flow& before, const std::string& id);

// "" when nothing changed.
std::string UndoOfLock(uint8_t flags_before, uint8_t flags_after, const std::string& id);

// Where a flow goes when its placement by hand ends: where it was before, if that port still has a path (its number may
// be another by now) that lives; its native port otherwise.
Deadlines::Place PlaceAfter(const std::optional<Deadlines::Place>& before, uint8_t native_slot,
                            const std::function<std::optional<uint8_t>(uint16_t)>& slot_of_port,
                            const std::function<bool(uint8_t)>& is_dead);

}  // namespace cw::agent
