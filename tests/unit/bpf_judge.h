// SPDX-License-Identifier: Apache-2.0
// What the kernel does with a verified reply (bpf/probe.h) and how it judges by it (bpf/judge.h), by the same functions
// of bpf/liveness.h, for simulators in which there is no map. Times in nanoseconds.
#ifndef CW_TESTS_UNIT_BPF_JUDGE_H
#define CW_TESTS_UNIT_BPF_JUDGE_H

#include <array>
#include <cstdint>
#include <utility>

#include "bpf/liveness.h"

namespace cw::test {

struct SeenReply {
  uint32_t responder_session = 0;
  uint32_t round = 0;
  uint32_t slot = 0;
  uint64_t t2 = 0;   // the peer's clock
  uint64_t now = 0;  // ours
  std::array<uint16_t, CW_ROUNDS> arrived{};
};

// on_change(slot, from, to): the slot's state has changed, other than between UP and SUSPECT.
template <typename OnChange>
void JudgeSlots(cw_reply* r, cw_pair* pair, OnChange on_change) {
  uint32_t near = 0, lag = 0, lag_long = 0;
  if (const uint64_t away = cw_liveness_away(r, pair)) cw_liveness_excuse(r, pair, away);
  for (uint32_t s = 0; s < CW_MAX_SLOTS; ++s) {
    cw_slot* slot = &pair->slot[s];
    if (slot->state == CW_SLOT_UNUSED) continue;
    const uint32_t missed = cw_liveness_missed(r, pair, slot, s);
    const uint32_t misses = missed ? cw_liveness_misses(r, pair, s, missed) : 0;
    const uint32_t finding = cw_liveness_finding(r, pair, slot, s, missed, misses);
    slot->misses = misses;
    const int from = cw_liveness_apply(r, pair, slot, s, finding);
    if (from >= 0) on_change(s, from, CW_SLOT_UP);
    if (finding & CW_FOUND_NEAR) near |= 1u << s;
    if (finding & CW_FOUND_LAG) lag |= 1u << s;
    if (finding & CW_FOUND_LAG_LONG) lag_long |= 1u << s;
  }
  if (near == 0) return;
  const uint32_t dead = cw_liveness_dead(cw_liveness_half(r, pair, near), lag, lag_long);
  for (uint32_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (!(dead >> s & 1)) continue;
    const int from = cw_liveness_kill(r, pair, &pair->slot[s], s);
    if (from >= 0) on_change(s, from, CW_SLOT_DEAD);
  }
}

// false: no request of ours is outstanding there.
template <typename OnChange>

bool TakeReply(const SeenReply& seen, uint32_t miss_limit, uint32_t revive_limit, cw_pair* pair, cw_probe_tx* tx,
               OnChange on_change) {
  const uint32_t at = seen.round % CW_TX_ROUNDS;
  if (tx->round[seen.slot][at] != seen.round || tx->t1[seen.slot][at] == 0) return false;
  const uint64_t t1 = std::exchange(tx->t1[seen.slot][at], 0);
  if (seen.responder_session != pair->responder_session) {
    pair->responder_session = seen.responder_session;
    pair->floor_round = seen.round;
  }
  cw_slot_raw(&pair->slot[seen.slot], seen.t2 - t1);
  cw_reply r = {};
  r.round = seen.round;
  r.witness = seen.slot;
  r.miss_limit = miss_limit;
  r.patience_ns = 15'000'000;
  r.revive_limit = revive_limit;
  r.t2 = seen.t2;
  r.now = seen.now;
  for (uint32_t i = 0; i < CW_ROUNDS; ++i) {
    r.rcvd[i] = seen.arrived[i];
    r.sent[i] = static_cast<uint16_t>(cw_round_mask_of(&pair->sent[(seen.round - i) & 7], seen.round - i));
  }
  r.rcvd[0] |= static_cast<uint16_t>(1u << seen.slot);
  JudgeSlots(&r, pair, on_change);
  return true;
}

}  // namespace cw::test

#endif
