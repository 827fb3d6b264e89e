// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/probe_fates.h"

namespace cw::control {
namespace {

constexpr uint32_t kOvertaken = 2;  // rounds: a later probe of the same path is this much later

}  // namespace

void ProbeFates::Restart(uint32_t round) {
  began_ = true;
  newest_ = unsettled_ = round;
  ring_.fill({});
}

void ProbeFates::Answered(uint32_t round, uint8_t slot, const Arrived& arrived, uint16_t judged, Settled settled) {
  const auto ahead = static_cast<int32_t>(round - newest_);
  if (!began_ || ahead > static_cast<int32_t>(kSettleRounds) || ahead < -static_cast<int32_t>(kRing)) {
    Restart(round);
    ring_[round % kRing] = {.number = round, .judged = judged};
  }
  for (; static_cast<int32_t>(round - newest_) > 0; ++newest_) {
    ring_[(newest_ + 1) % kRing] = {.number = newest_ + 1, .judged = judged};
    if (newest_ + 1 - unsettled_ >= kSettleRounds) settled(ring_[unsettled_++ % kRing]);
  }
  Arrived known = arrived;
  known[0] |= static_cast<uint16_t>(1u << slot);
  Learn(round, known);
  SettleKnown(settled);
}

// To a late reply the peer remembers the oldest rounds no more: only an empty round before one that is not tells of a
// loss.
void ProbeFates::Learn(uint32_t round, const Arrived& arrived) {
  uint32_t told = kReplyRounds;
  while (told > 0 && arrived[told - 1] == 0) --told;
  unsigned later = 0;  // slots that delivered a probe kOvertaken rounds later
  for (uint32_t i = 0; i < told; ++i) {
    if (i >= kOvertaken) later |= arrived[i - kOvertaken];
    Round& entry = ring_[(round - i) % kRing];
    if (entry.number != round - i) continue;
    entry.arrived |= arrived[i];
    entry.lost = static_cast<uint16_t>((entry.lost | later) & ~entry.arrived);
  }
}

void ProbeFates::SettleKnown(Settled settled) {
  for (; newest_ - unsettled_ >= kReplyRounds; ++unsettled_) {
    const Round& round = ring_[unsettled_ % kRing];
    if ((round.judged & ~(round.arrived | round.lost)) != 0) return;
    settled(round);
  }
}

}  // namespace cw::control
