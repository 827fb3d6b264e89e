// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/doubt.h"

#include "userspace/probe/pair_store.h"

namespace cw::probe {
namespace {

constexpr uint32_t kDoubtful = 1u << CW_SLOT_SUSPECT | 1u << CW_SLOT_DEAD;
constexpr int64_t kAnswerTicks = 2;  // after so many active intervals a round's answers are there

// Live slots of which the last round shows nothing, though the peer has told of it. The kernel waits for a slot's
// silence to grow longer than a round's interval.
uint32_t UnansweredSlots(const cw_pair& pair, uint32_t slots, uint32_t round) {
  uint32_t unanswered = 0;
  bool told = false;
  for (uint32_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if ((slots >> s & 1) == 0) continue;
    const uint32_t progress = Load(pair.slot[s].progress_round);
    told |= progress == round;
    if (Load(pair.slot[s].state) == CW_SLOT_UP && static_cast<int32_t>(round - progress) > 0) unanswered |= 1u << s;
  }
  return told ? unanswered : 0;
}

}  // namespace

DoubtVerdict JudgeDoubt(const cw_pair& pair, uint32_t slots, uint32_t round, bool carries_data, int64_t now_ns,
                        int64_t doubt_ns, DoubtMemory& memory) {
  uint32_t doubtful = 0, undecided = carries_data ? UnansweredSlots(pair, slots, round) : 0;
  for (uint32_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if ((slots >> s & 1) == 0) continue;
    const auto state = Load(pair.slot[s].state);
    if ((kDoubtful >> state & 1) != 0) doubtful |= 1u << s;
    if (state == CW_SLOT_SUSPECT) undecided |= 1u << s;
  }
  doubtful |= undecided;
  if ((doubtful & ~memory.mask) != 0) memory.since_ns = now_ns;
  memory.mask = doubtful;
  const bool doubt = doubtful != 0 && now_ns - memory.since_ns < doubt_ns;
  return {.active = carries_data || doubt, .hurry = carries_data && undecided != 0 && doubt};
}

int64_t LookAfterNs(int64_t interval_ns, int64_t active_interval_ns) {
  return interval_ns > 2 * kAnswerTicks * active_interval_ns ? kAnswerTicks * active_interval_ns : 0;
}

}  // namespace cw::probe
