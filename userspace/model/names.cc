// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/names.h"

namespace cw {

absl::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kOff:
      return "off";
    case Mode::kObserve:
      return "observe";
    case Mode::kProtect:
      return "protect";
    case Mode::kOptimize:
      return "optimize";
  }
  return "unknown";
}

absl::string_view SlotStateName(SlotState state) {
  switch (state) {
    case SlotState::kUnused:
      return "unused";
    case SlotState::kUp:
      return "up";
    case SlotState::kSuspect:
      return "suspect";
    case SlotState::kDead:
      return "dead";
    case SlotState::kNew:
      return "new";
  }
  return "unknown";
}

absl::string_view MoveReasonName(MoveReason r) {
  switch (r) {
    case MoveReason::kNone:
      return "none";
    case MoveReason::kAssign:
      return "assigned";
    case MoveReason::kDead:
      return "path dead";
    case MoveReason::kIdle:
      return "idle";
    case MoveReason::kGap:
      return "gap";
    case MoveReason::kForced:
      return "forced";
    case MoveReason::kLease:
      return "lease over";
    case MoveReason::kHeld:
      return "held";
    case MoveReason::kBlind:
      return "unanswered";
  }
  return "unknown";
}

std::optional<Mode> ParseMode(absl::string_view text) {
  for (const Mode m : {Mode::kOff, Mode::kObserve, Mode::kProtect, Mode::kOptimize}) {
    if (text == ModeName(m)) return m;
  }
  return std::nullopt;
}

}  // namespace cw
