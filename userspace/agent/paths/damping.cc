// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/damping.h"

namespace cw::agent {

uint16_t JudgedSlots(const cw_pair& pair) {
  uint16_t judged = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint8_t state = probe::Load(pair.slot[s].state);
    if (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) judged |= static_cast<uint16_t>(1u << s);
  }
  return judged;
}

namespace {

// Slots on which packets of full size do not arrive; 0 where they arrive on none: then there is nothing to choose.
uint16_t SmallSlots(const PairState& pair) {
  uint16_t small = 0, whole = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const control::PathSize& size = pair.slot[s].size;
    if (size.arrives() > 0) {
      small |= static_cast<uint16_t>(1u << s);
    } else if (size.passed_ns() > 0) {
      whole |= static_cast<uint16_t>(1u << s);
    }
  }
  return whole == 0 ? uint16_t{0} : small;
}

}  // namespace

void Damping::Update(PairState& pair) {
  const int64_t now_ns = monotonic_.NowNs();
  uint16_t damped = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const bool dead = probe::Load(mesh_.shared(pair.index)->slot[s].state) == CW_SLOT_DEAD;
    // The record of its return may have been lost, or its number means another path now.
    if (!dead && pair.slot[s].was_dead) pair.slot[s].damping.Up(now_ns);
    pair.slot[s].was_dead = dead;
    const bool usable = pair.slot[s].damping.UsableAt(now_ns) && !links_.Damps(pair, s, now_ns);
    if (!dead && !usable) damped |= static_cast<uint16_t>(1u << s);
  }
  pair.damped = damped;
  Publish(pair);
}

void Damping::UpdateAll() {
  for (const auto& [index, pair] : pairs_) Update(*pair);
}

void Damping::Publish(PairState& pair) {
  const auto lossy = static_cast<uint16_t>(LossySlots(pair, monotonic_.NowNs()) | SmallSlots(pair));
  const auto blocked = static_cast<uint16_t>(pair.damped | pair.drained | lossy | (pair.blind ? 0xffff : 0));
  if (blocked == pair.blocked) return;
  pair.blocked = blocked;
  blocked_(pair.index, blocked);
}

}  // namespace cw::agent
