// SPDX-License-Identifier: Apache-2.0
//
// Which paths an operator wants free of this host's flows, and where those flows go.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/model/addr.h"
#include "userspace/model/names.h"

namespace cw::control {

enum class DrainKind : uint8_t { kPath = 1, kLink = 2, kSpine = 3, kNic = 4 };

const char* DrainKindName(DrainKind kind);  // "path", "link", "spine", "nic"
std::optional<DrainKind> ParseDrainKind(absl::string_view text);

enum class Crosses : uint8_t { kNo, kYes, kMaybe };

// Whether a path crosses the port or switch with this address. hops: as traced, zero where a switch does not answer,
// empty where nothing is known; `remote` ends the last link.
Crosses CrossesHop(absl::Span<const Addr> hops, const Addr& remote, const Addr& hop);

// Whether what takes a slot's path crosses what is drained. yes, maybe: masks of the slots that do, that may; all of
// them: a NIC. slot kSlotNone: its path is not known.
Crosses CrossesSlot(uint16_t yes, uint16_t maybe, uint8_t slot);

struct DrainSlot {
  uint8_t slot = 0;
  bool live = false;
  bool path = false;     // flows may be put there in principle: no mere native port
  bool drained = false;  // by anybody
  bool damped = false;
  int flows = 0;  // of this host, those that are on their way there included
};

// Where a flow goes that leaves a drained slot: the live path with the fewest flows, a damped one only where nothing
// else lives. nullopt: nothing remains.
std::optional<uint8_t> DrainTarget(absl::Span<const DrainSlot> slots);

// A pair that has a live path now and would have none.
bool NothingRemains(absl::Span<const DrainSlot> slots);

}  // namespace cw::control
