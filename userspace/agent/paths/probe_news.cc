// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/probe_news.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sync/pair_estimator.h"
#include "userspace/agent/paths/damping.h"

namespace cw::agent {
namespace {

constexpr size_t kWindowProbes = 4096;  // per slot and decision window; more say nothing more
// Also those that are dead: one that loses half of its packets is dead now and then.
uint16_t ProbedSlots(const cw_pair& pair) {
  uint16_t probed = 0;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint8_t state = probe::Load(pair.slot[s].state);
    probed |= static_cast<uint16_t>((state == CW_SLOT_UP || state == CW_SLOT_SUSPECT || state == CW_SLOT_DEAD) << s);
  }
  return probed;
}

constexpr uint32_t kMostRounds = 100'000;  // between two counts; more are a numbering that began anew

}  // namespace

void ProbeNews::OnProbe(const cw_ev_probe& probe) {
  PairState* pair = FindIn(pairs_, probe.pair);
  if (pair == nullptr || probe.slot >= CW_MAX_SLOTS) return;
  const auto t1 = static_cast<int64_t>(probe.t1), t2 = static_cast<int64_t>(probe.t2);
  const auto t3 = static_cast<int64_t>(probe.t3), t4 = static_cast<int64_t>(probe.t4);
  std::optional<sync::Trip> by_nics;
  if (probe.t2_nic != 0 && probe.t4_nic != 0)
    by_nics = {t1, static_cast<int64_t>(probe.t2_nic), t3, static_cast<int64_t>(probe.t4_nic)};
  const sync::Trip trip = {t1, t2, t3, t4};
  pair->AddTrip(trip, by_nics, probe.slot, probe.rslot);
  const int64_t now_ns = monotonic_.NowNs();
  pair->fates.Answered(probe.round, probe.slot, std::to_array(probe.arrived), ProbedSlots(*store_.At(probe.pair)),
                       [&](const control::ProbeFates::Round& round) { Settle(*pair, round, now_ns); });
  pair->last_reply_ns = vitals_.newest_data_ns = now_ns;
  // By verbs, software stamps an arrival when a thread was woken for it. So delays take the devices' stamps where the
  // clock does; never both kinds.
  const bool by_devices = pair->ByNics() && asks_.by_verbs(*pair);
  const sync::Trip& timed = by_devices && by_nics ? *by_nics : trip;
  const int64_t forward_ns = timed.OutNs() - pair->clock->OffsetAt(timed.t1_ns);
  const int64_t reverse_ns = timed.BackNs() + pair->clock->OffsetAt(timed.t4_ns);
  asks_.answered(probe.pair, probe.slot);
  SlotState& slot = pair->slot[probe.slot];
  if (slot.answered_ns == 0) {  // rounds before it went unanswered, or were never sent: an agent begins behind a gap
    slot.forward.Restart(now_ns);
    slot.counted_round = probe.round - 1;
  }
  slot.answered_ns = std::max(slot.answered_ns, t1);
  slot.window.AddEcn(probe.flags);
  if (slot.silence) asks_.of_silent(*pair, slot, probe);
  // No packet arrives before it was sent: then a clock's rate has just changed, and the line does not know it yet.
  const bool measured = pair->estimate.settled && (!by_devices || by_nics);
  if (!measured || forward_ns <= 0 || reverse_ns <= 0) {
    return;
  }
  if (RingRecorder* ring = asks_.ring(); ring != nullptr) {
    ring->Delay(probe.pair, probe.slot, /*reverse=*/false, now_ns, forward_ns);
    if (probe.rslot < CW_MAX_SLOTS) ring->Delay(probe.pair, probe.rslot, /*reverse=*/true, now_ns, reverse_ns);
  }
  slot.forward.AddProbe(now_ns, forward_ns);
  asks_.delayed(probe.pair, probe.slot, t1, forward_ns);
  if (pair->delays != nullptr) {
    pair->delays->forward.Add(forward_ns);
    pair->delays->reverse.Add(reverse_ns);
  }
  if (slot.window.owd_ns.size() < kWindowProbes) slot.window.owd_ns.push_back(forward_ns);
  if (probe.rslot < CW_MAX_SLOTS) pair->slot[probe.rslot].reverse.AddProbe(now_ns, reverse_ns);
}

void ProbeNews::Settle(PairState& pair, const control::ProbeFates::Round& round, int64_t now_ns) {
  if (pair.loss != nullptr) {
    control::ProbeFates::Round judged = round;
    judged.judged &= JudgedSlots(*store_.At(pair.index));
    pair.loss->Take(judged);
  }
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const bool lost = (round.judged & round.lost) >> s & 1;
    if (((round.judged & (round.arrived | round.lost)) >> s & 1) == 0) continue;
    AddFates(pair, s, now_ns, 1, lost);
  }
}

void ProbeNews::AddFates(PairState& pair, uint8_t slot, int64_t now_ns, uint32_t known, uint32_t lost) {
  pair.slot[slot].forward.AddFates(now_ns, known, lost);
  if (RingRecorder* ring = asks_.ring(); ring != nullptr) ring->Fates(pair.index, slot, known, lost);
}

bool ProbeNews::LookForSilence(PairState& pair, int64_t interval_ns, int64_t now_ns) {
  const cw_pair& shared = *store_.At(pair.index);
  control::PathSilence::Look look{.round = probe::Load(shared.cur_round), .interval_ns = interval_ns};
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (mesh_.slots(pair.index).port(s) == 0) continue;
    look.probed |= static_cast<uint16_t>(1u << s);
    look.arrived[s] = probe::Load(shared.slot[s].progress_round);
  }
  look.peer_probes = probe::Load(shared.peer_session) != 0;
  look.peer_round = probe::Load(shared.peer_round);
  return pair.path_silence.Step(now_ns, look);
}

void ProbeNews::CountSent(PairState& pair, int64_t now_ns) {
  const cw_pair& shared = *store_.At(pair.index);
  const uint32_t round = probe::Load(shared.cur_round);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    SlotState& slot = pair.slot[s];
    const uint32_t sent = round - std::exchange(slot.counted_round, round);
    if (sent > kMostRounds) continue;
    const bool begun = slot.answered_ns != 0 || probe::Load(shared.slot[s].state) != CW_SLOT_NEW;
    if (!begun || mesh_.slots(pair.index).port(s) == 0) continue;
    slot.forward.AddSent(now_ns, sent);
    // Nothing settles a cut path's rounds; where all are silent it is not known whose fault that is.
    if (probe::Load(shared.slot[s].state) != CW_SLOT_DEAD || probe::Load(shared.slot[s].revive) > 0 ||
        pair.path_silence.AllSilent())
      continue;
    AddFates(pair, s, now_ns, sent, sent);
  }
}

}  // namespace cw::agent
