/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The rule of liveness (bpf/liveness.h) applied to the maps: states, masks, counters, events. BPF only. */
#ifndef CW_BPF_JUDGE_H
#define CW_BPF_JUDGE_H

#include "bpf/dataplane.h"

/* The verdict and its evidence; wakes the agent. */
static __always_inline void cw_emit_slot(const struct cw_reply* r, const struct cw_slot* slot, __u32 s, __u32 from,
                                         __u32 to, __u32 limit) {
  struct cw_ev_slot* ev = bpf_ringbuf_reserve(&cw_event_ring, sizeof(*ev), 0);
  __u64 silence;
  if (!ev) {
    cw_count(CW_COUNT_event_ring_full);
    return;
  }
  ev->type = CW_EV_SLOT;
  ev->pair = r->pair;
  ev->slot = s;
  ev->from = from;
  ev->to = to;
  ev->witness = r->witness;
  ev->half = limit > r->miss_limit;
  ev->reserved = 0;
  ev->round = r->round;
  ev->progress_round = slot->progress_round;
  ev->acked_round = slot->acked_round;
  ev->misses = slot->misses;
  ev->limit = limit;
  silence = cw_liveness_silence(r, slot);
  ev->silence_ns = silence > 0xffffffff ? 0xffffffff : silence;
  ev->jump_ns = slot->jump_ns;
  ev->ns = r->now;
  bpf_ringbuf_submit(ev, BPF_RB_FORCE_WAKEUP);
}

/* Before the passes: no slot is blamed for a time in which all were silent. */
__noinline int cw_judge_away(struct cw_reply* r) {
  struct cw_pair* pair;
  __u32 index;
  __u64 away;
  if (!r) return 0;
  index = r->pair;
  pair = cw_get_pair(index);
  if (!pair) return 0;
  away = cw_liveness_away(r, pair);
  if (away) cw_liveness_excuse(r, pair, away);
  return 0;
}

/* The passes for one slot are global functions, so that the verifier reads each once and not for each of 16 slots. */

__noinline __u32 cw_judge_missed(struct cw_reply* r, __u32 s) {
  struct cw_pair* pair;
  __u32 index;
  if (!r || s >= CW_MAX_SLOTS) return 0;
  index = r->pair;
  pair = cw_get_pair(index);
  return pair ? cw_liveness_missed(r, pair, &pair->slot[s], s) : 0;
}

__noinline __u32 cw_judge_misses(struct cw_reply* r, __u32 s, __u32 missed) {
  struct cw_pair* pair;
  __u32 index;
  if (!r || s >= CW_MAX_SLOTS) return 0;
  index = r->pair;
  pair = cw_get_pair(index);
  return pair ? cw_liveness_misses(r, pair, s, missed) : 0;
}

__noinline __u32 cw_judge_finding(struct cw_reply* r, __u32 s, __u32 missed, __u32 misses) {
  struct cw_pair* pair;
  struct cw_slot* slot;
  __u32 index, finding;
  int from;
  if (!r || s >= CW_MAX_SLOTS) return 0;
  index = r->pair;
  pair = cw_get_pair(index);
  if (!pair) return 0;
  slot = &pair->slot[s];
  finding = cw_liveness_finding(r, pair, slot, s, missed, misses);
  slot->misses = misses;
  from = cw_liveness_apply(r, pair, slot, s, finding);
  if (from == CW_SLOT_DEAD) cw_count(CW_COUNT_slots_revived);
  if (from >= 0) cw_emit_slot(r, slot, s, from, CW_SLOT_UP, r->revive_limit);
  return finding;
}

/* Second pass: declares one slot dead. limit: the one that was reached. */
__noinline int cw_judge_kill(struct cw_reply* r, __u32 s, __u32 limit) {
  struct cw_pair* pair;
  struct cw_slot* slot;
  __u32 index;
  int from;
  if (!r || s >= CW_MAX_SLOTS) return 0;
  index = r->pair;
  pair = cw_get_pair(index);
  if (!pair) return 0;
  slot = &pair->slot[s];
  from = cw_liveness_kill(r, pair, slot, s);
  if (from < 0) return 0;
  cw_count(CW_COUNT_slots_died);
  cw_emit_slot(r, slot, s, from, CW_SLOT_DEAD, limit);
  return 1;
}

/* Judges all slots of a pair by one verified reply. */
static __noinline int cw_judge(struct cw_reply* r, struct cw_pair* pair) {
  __u32 near = 0, lag = 0, lag_long = 0, dead, limit;
  int half;
  cw_judge_away(r);
  CW_NO_UNROLL
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s) {
    __u32 missed, misses, finding;
    if (pair->slot[s].state == CW_SLOT_UNUSED) continue;
    missed = cw_judge_missed(r, s);
    misses = missed ? cw_judge_misses(r, s, missed) : 0;
    finding = cw_judge_finding(r, s, missed, misses);
    /* CW_FOUND_LAG is bit 0, CW_FOUND_LAG_LONG bit 1, CW_FOUND_NEAR bit 6. */
    lag |= (finding & 1) << s;
    lag_long |= (finding >> 1 & 1) << s;
    near |= (finding >> 6 & 1) << s;
  }
  if (!near) return 0;
  half = cw_liveness_half(r, pair, near);
  dead = cw_liveness_dead(half, lag, lag_long);
  limit = half ? pair->half_dead_rounds : r->miss_limit;
  CW_NO_UNROLL
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s)
    if (dead >> s & 1) cw_judge_kill(r, s, limit);
  return 0;
}

#endif
