// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/path_silence.h"

#include <algorithm>

namespace cw::control {

bool PathSilence::Step(int64_t now_ns, const Look& look) {
  const bool away = !began_ || now_ns - looked_ns_ > kAwayNs + 2 * look.interval_ns;
  looked_ns_ = now_ns;
  // Time counts when a round was sent in it.
  const bool sent = !began_ || look.round != round_;
  const bool paused = !began_ || away || now_ns - round_ns_ > kAwayNs + 3 * look.interval_ns;
  const int64_t passed_ns = sent && !paused ? now_ns - round_ns_ : 0;
  if (sent || away) round_ns_ = now_ns;
  round_ = look.round;
  began_ = true;
  const int64_t least_ns = std::max(kLeastNs, kIntervals * look.interval_ns);
  bool changed = false;
  probed_ = look.probed;
  silent_ = 0;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    Slot& slot = slots_[s];
    if ((look.probed >> s & 1) == 0) {
      slot = {};
      continue;
    }
    const bool heard = slot.known && slot.arrived != look.arrived[s];
    const bool anew = heard || !slot.known || (away && !slot.silent);
    slot.silent_ns = anew ? 0 : slot.silent_ns + passed_ns;
    slot.known = true;
    slot.arrived = look.arrived[s];
    const bool silent = slot.silent_ns > least_ns;
    changed |= silent != slot.silent;
    slot.silent = silent;
    if (silent) silent_ |= static_cast<uint16_t>(1u << s);
  }
  if (away && peer_ != Peer::kSilent) peer_silent_ns_ = 0;
  return StepPeer(passed_ns, least_ns, look) || changed;
}

// That its probes do not arrive counts while ours are sent: who sends none may not be listening, either.
bool PathSilence::StepPeer(int64_t passed_ns, int64_t least_ns, const Look& look) {
  const Peer before = peer_;
  if (!look.peer_probes) {
    peer_ = Peer::kNotKnown;
  } else if (look.peer_round != peer_round_ || before == Peer::kNotKnown) {
    peer_ = Peer::kHeard;
    peer_silent_ns_ = 0;
  } else if ((peer_silent_ns_ += passed_ns) > least_ns) {
    peer_ = Peer::kSilent;
  }
  peer_round_ = look.peer_round;
  return peer_ != before;
}

}  // namespace cw::control
