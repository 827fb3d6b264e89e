// SPDX-License-Identifier: Apache-2.0
//
// The words for modes, states and reasons, in the numbering of maps/abi.h (a unit test holds the two together) so that
// the rooms which may not see the maps can name them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace cw {

inline constexpr int kMaxSlots = 16;        // path slots of a pair of NICs
inline constexpr uint8_t kSlotNone = 0xff;  // no slot: the path is not probed

enum class Mode : uint8_t { kOff = 0, kObserve = 1, kProtect = 2, kOptimize = 3 };
enum class SlotState : uint8_t { kUnused = 0, kUp = 1, kSuspect = 2, kDead = 3, kNew = 4 };
enum class MoveReason : uint8_t {
  kNone = 0,
  kAssign = 1,
  kDead = 2,
  kIdle = 3,
  kGap = 4,
  kForced = 5,
  kLease = 6,
  kHeld = 7,
  kBlind = 8
};

absl::string_view ModeName(Mode mode);             // "off", "observe", "protect", "optimize"
absl::string_view SlotStateName(SlotState state);  // "unused", "up", "suspect", "dead", "new"
// "none", "assigned", "path dead", "idle", "gap", "forced", "lease over", "held", "unanswered"
absl::string_view MoveReasonName(MoveReason r);
std::optional<Mode> ParseMode(absl::string_view text);

}  // namespace cw
