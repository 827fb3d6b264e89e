// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/drain.h"

#include <tuple>

namespace cw::control {

const char* DrainKindName(DrainKind kind) {
  switch (kind) {
    case DrainKind::kPath:
      return "path";
    case DrainKind::kLink:
      return "link";
    case DrainKind::kSpine:
      return "spine";
    case DrainKind::kNic:
      return "nic";
  }
  return "";
}

std::optional<DrainKind> ParseDrainKind(absl::string_view text) {
  for (const DrainKind kind : {DrainKind::kPath, DrainKind::kLink, DrainKind::kSpine, DrainKind::kNic}) {
    if (text == DrainKindName(kind)) return kind;
  }
  return std::nullopt;
}

Crosses CrossesHop(absl::Span<const Addr> hops, const Addr& remote, const Addr& hop) {
  if (hop.is_zero()) return Crosses::kNo;  // what silent hops have in its place
  if (hop == remote) return Crosses::kYes;
  bool silent = hops.empty();
  for (const Addr& at : hops) {
    if (at == hop) return Crosses::kYes;
    silent = silent || at.is_zero();
  }
  return silent ? Crosses::kMaybe : Crosses::kNo;
}

Crosses CrossesSlot(uint16_t yes, uint16_t maybe, uint8_t slot) {
  if (yes == 0xffff) return Crosses::kYes;
  if (slot >= kMaxSlots) return (yes | maybe) != 0 ? Crosses::kMaybe : Crosses::kNo;
  if ((yes >> slot & 1) != 0) return Crosses::kYes;
  return (maybe >> slot & 1) != 0 ? Crosses::kMaybe : Crosses::kNo;
}

std::optional<uint8_t> DrainTarget(absl::Span<const DrainSlot> slots) {
  const DrainSlot* best = nullptr;
  const auto rank = [](const DrainSlot& s) { return std::tuple(s.damped, s.flows, s.slot); };
  for (const DrainSlot& s : slots) {
    if (!s.live || !s.path || s.drained) continue;
    if (best == nullptr || rank(s) < rank(*best)) best = &s;
  }
  if (best == nullptr) return std::nullopt;
  return best->slot;
}

bool NothingRemains(absl::Span<const DrainSlot> slots) {
  bool lives = false;
  for (const DrainSlot& s : slots) lives = lives || (s.live && s.path);
  return lives && !DrainTarget(slots).has_value();
}

}  // namespace cw::control
