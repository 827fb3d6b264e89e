/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Which path slots are dead. Pure: compiles for BPF and for the host; time comes in as an argument.
 *
 * Judged when a verified reply arrives, the only moment at which something is known: its bitmap says which slots'
 * requests of the last 8 rounds had reached the peer when the witness (the request it answers) did. A round counts
 * against a slot when its request was sent and did not arrive, although
 *   - another slot's request of that round did (so the peer lived and listened),
 *   - no newer request of the slot has arrived, and no data sent on it in that round or later was acknowledged,
 * and no more rounds count than the slot has been silent for. A full queue makes packets late, but goes on delivering
 * older ones; a dead path stops. So what counts is the time since anything arrived, probe or data, less the largest
 * jump of the delay in the recent past (a burst that lands in the queue at once silences a whole path for as long), of
 * which 3.5 ms or two rounds are believed at most: a wrong verdict costs one move, a late one stops the flows.
 * What comes to nothing makes the rule more patient: after a silence that was nearly a death, or was called one, and
 * ended by itself, only half as much again is one. That is forgotten over minutes. So a path whose packets, or the
 * processors that handle them, stand still at times is left alone, and all others are judged as fast as before. What
 * was lost in a silence, and did not just come late, teaches nothing: to leave such a path was right. (The
 * idea: accrual failure detectors, Hayashibara et al., SRDS 2004. What was seen of a path says how long its silence may
 * last.) Time in which nothing arrived on any path is no path's silence: the prober, this host or the peer was away.
 * miss_limit such rounds are death. If half of the live slots or more lag together, the peer or this host is the
 * likelier cause, and half_dead_rounds are wanted. Silence is told by the peer's clock or by ours, never by both.
 * Serial arithmetic throughout: rounds and times may wrap. Several CPUs may judge at once: changes of state go by
 * compare-and-swap, the rest are plain stores of newer values. */
#ifndef CW_BPF_LIVENESS_H
#define CW_BPF_LIVENESS_H

#include "bpf/rounds.h"

#define CW_SILENCE_MARGIN_NS 200000
#define CW_CLOCK_STEP_NS 1000000000ll /* no delay is a second longer than the last: a clock was set */
#define CW_JUMP_FORGET 10             /* by 1/1024 per reply */
#define CW_JUMP_ROUNDS 2
#define CW_JUMP_MOST_NS 3500000
#define CW_PATIENCE_FORGET 18         /* by 1/262144 per sign of life: some 4 minutes at one a millisecond */
#define CW_PATIENCE_ENDED_NS 50000000 /* a longer silence was no pause: the path was gone, and is back */
#define CW_LAG_MEMORY 2               /* rounds */
#define CW_ROUND_RESTART 1024         /* progress so far ahead belongs to earlier numbering */

/* One verified reply. Masks: bit s is slot s; [i] is round - i. */
struct cw_reply {
  __u32 pair;
  __u32 round;
  __u32 witness;
  __u32 miss_limit; /* 0 = no slot is ever declared dead */
  __u32 revive_limit;
  __u32 patience_ns; /* the most that is learned; 0 = nothing */
  __u64 t2;          /* arrival of the witness, peer's clock */
  __u64 now;         /* our clock, for changed_ns */
  __u16 rcvd[CW_ROUNDS];
  __u16 sent[CW_ROUNDS];
};

/* What the first pass finds. */
enum cw_liveness_finding {
  CW_FOUND_LAG = 1,      /* miss_limit reached */
  CW_FOUND_LAG_LONG = 2, /* the longer limit too */
  CW_FOUND_ARRIVED = 4,  /* NEW: first sign of life */
  CW_FOUND_REVIVED = 8,  /* DEAD: answered revive_limit rounds in a row */
  CW_FOUND_SUSPECT = 16, /* UP: first miss */
  CW_FOUND_CLEARED = 32, /* SUSPECT: progress, no miss left */
  /* One miss short of miss_limit, or there. Counts when half of the slots lag together, because those that stopped
   * together are not found in the same reply. */
  CW_FOUND_NEAR = 64,
};

/* Changes the state of a slot unless somebody else did. Port, state and flags are one word: the agent's stores to port
 * and flags are not undone. Returns 1 if this call changed it. */
CW_INLINE int cw_slot_transition(struct cw_slot* slot, __u32 from, __u32 to) {
  volatile cw_word32* word = (volatile cw_word32*)slot;
  __u32 old = *word;
  if (((old >> 16) & 0xff) != from) return 0;
  return __sync_val_compare_and_swap(word, old, (old & 0xff00ffffu) | to << 16) == old;
}

/* A reply to slot's own request shows t2 - t1: how much longer it took than the one before. */
CW_INLINE void cw_slot_raw(struct cw_slot* slot, __u64 raw) {
  __s64 longer = (__s64)(raw - slot->raw_ns);
  int first = !slot->raw_ns;
  slot->raw_ns = raw;
  if (first || longer > CW_CLOCK_STEP_NS || longer < -CW_CLOCK_STEP_NS) return;
  if (longer > (__s64)slot->jump_ns)
    slot->jump_ns = (__u32)longer;
  else
    slot->jump_ns -= slot->jump_ns >> CW_JUMP_FORGET;
}

/* The masks of the eight rounds of a reply, turned: bit i = round - i, for one slot. */
CW_INLINE __u32 cw_liveness_rounds(const __u16* masks, __u32 slot) {
  __u32 v = 0;
  CW_UNROLL(8)
  for (__u32 i = 0; i < CW_ROUNDS; ++i) v |= ((masks[i] >> slot) & 1u) << i;
  return v;
}

/* bit i = another slot's request of round - i arrived (asked only where this slot's did not). */
CW_INLINE __u32 cw_liveness_proven(const struct cw_reply* r) {
  __u32 v = 0;
  CW_UNROLL(8)
  for (__u32 i = 0; i < CW_ROUNDS; ++i) v |= (((0u - r->rcvd[i]) >> 31) & 1u) << i;
  return v;
}

/* Time since the last sign of life: a probe's arrival by the peer's clock, acknowledged data by ours. */
CW_INLINE __u64 cw_liveness_silence(const struct cw_reply* r, const struct cw_slot* slot) {
  __u64 probes = r->t2 - slot->heard_ns;
  __u64 data = r->now - slot->acked_ns;
  if ((__s64)probes < 0) probes = 0; /* an older reply came later */
  if (slot->acked_ns && (__s64)data < 0) data = 0;
  return slot->acked_ns && data < probes ? data : probes;
}

/* Whole rounds of silence that no growing queue explains. */
CW_INLINE __u32 cw_liveness_silent_rounds(const struct cw_reply* r, const struct cw_pair* pair,
                                          const struct cw_slot* slot, __u32 s) {
  __u64 silence = cw_liveness_silence(r, slot);
  __u32 interval = pair->interval_ns;
  __u64 most = (__u64)CW_JUMP_ROUNDS * interval;
  __u64 explained;
  if (most < CW_JUMP_MOST_NS) most = CW_JUMP_MOST_NS;
  explained = slot->jump_ns < most ? slot->jump_ns : most;
  if (explained < pair->patience_ns[s]) explained = pair->patience_ns[s];
  explained += CW_SILENCE_MARGIN_NS;
  if (!interval || silence <= explained) return 0;
  silence = (silence - explained) / interval;
  return silence > CW_ROUND_RESTART ? CW_ROUND_RESTART : (__u32)silence;
}

/* Newest round that is known to have come through: by a bitmap, by acknowledged data, or because counting began later.
 */
CW_INLINE __u32 cw_liveness_progress(const struct cw_pair* pair, const struct cw_slot* slot) {
  return cw_round_max(cw_round_max(slot->progress_round, slot->acked_round), pair->floor_round - 1);
}

/* Rounds in a row that answered while dead: a hole among the newly proven ones starts the count afresh. */
CW_INLINE void cw_liveness_revive(struct cw_slot* slot, __u32 rcvd, __u32 sent, __u32 newest_age, __u32 old_age) {
  __u32 fresh = ((1u << old_age) - 1) & ~((1u << newest_age) - 1);
  __u32 got = cw_popcount16(rcvd & fresh);
  slot->revive = (sent & ~rcvd & fresh) ? 1 : slot->revive + got;
}

/* Whether what was missing was held back: no more than half of it is missing still. */
CW_INLINE int cw_liveness_held(__u32 rcvd, __u32 sent, __u32 newest_age, __u32 old_age) {
  __u32 asked = sent & ((1u << old_age) - 1) & ~((1u << newest_age) - 1);
  return 2 * cw_popcount16(asked & ~rcvd) <= cw_popcount16(asked);
}

/* A slot is heard again, after `silence`; held: nothing was lost. slot->misses is what the last judgement found. */
CW_INLINE void cw_liveness_learn(const struct cw_reply* r, struct cw_pair* pair, const struct cw_slot* slot, __u32 s,
                                 __u64 silence, int held) {
  __u32 patience = pair->patience_ns[s];
  __u64 counted = (__u64)r->miss_limit * pair->interval_ns; /* is waited for on top of it */
  int nearly = slot->state == CW_SLOT_DEAD || slot->misses + 1 >= r->miss_limit;
  patience -= (patience >> CW_PATIENCE_FORGET) + !!patience; /* the last bit, too */
  if (nearly && held && silence < CW_PATIENCE_ENDED_NS) {
    __u64 wanted = silence + (silence >> 1);
    wanted = wanted > counted ? wanted - counted : 0;
    if (wanted > r->patience_ns) wanted = r->patience_ns;
    if (wanted > patience) patience = (__u32)wanted;
  }
  pair->patience_ns[s] = patience;
}

/* Takes the bitmap's news of one slot into its progress. */
CW_INLINE void cw_liveness_advance(const struct cw_reply* r, struct cw_pair* pair, struct cw_slot* slot, __u32 s,
                                   __u32 rcvd, __u32 sent) {
  __u32 age = cw_lowest_bit(rcvd);
  __s32 ahead = cw_round_diff(slot->progress_round, r->round);
  __u32 old_age = ahead > 0 ? 0 : ahead < -(CW_ROUNDS - 1) ? CW_ROUNDS : (__u32)-ahead;
  if (ahead > CW_ROUND_RESTART) old_age = CW_ROUNDS;
  if (!rcvd || age >= old_age) return;
  if (slot->state == CW_SLOT_DEAD) cw_liveness_revive(slot, rcvd, sent, age, old_age);
  slot->progress_round = r->round - age;
  if (slot->state != CW_SLOT_NEW)
    cw_liveness_learn(r, pair, slot, s, r->t2 - slot->heard_ns, cw_liveness_held(rcvd, sent, age, old_age));
  slot->heard_ns = r->t2;
}

/* How many rounds ago the slot's newest progress was; <= 0: none is outstanding. */
CW_INLINE __s32 cw_liveness_behind(const struct cw_reply* r, const struct cw_pair* pair, const struct cw_slot* slot) {
  return cw_round_diff(r->round, cw_liveness_progress(pair, slot));
}

/* How long nothing of ours had arrived at the peer when the witness did, but for one interval; 0: no longer than the
 * 2.5 intervals after which the prober has paused. Mostly told by the witness's own slot alone. */
CW_INLINE __u64 cw_liveness_away(const struct cw_reply* r, const struct cw_pair* pair) {
  __s64 most = pair->interval_ns * 5ll / 2;
  __s64 least = (__s64)(r->t2 - pair->slot[r->witness & (CW_MAX_SLOTS - 1)].heard_ns);
  if (least <= most) return 0;
  CW_UNROLL(16)
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s) { /* without branches, for the verifier's sake */
    __s64 less = (__s64)(r->t2 - pair->slot[s].heard_ns) - least;
    least += less & (less >> 63) & -(__s64)(pair->live_mask >> s & 1);
  }
  return least <= most ? 0 : (__u64)least - pair->interval_ns;
}

/* Takes such a time out of the silence of all live slots. Without it, a path whose queue grows when all go on would
 * have been silent for all of it, and three rounds that are late would be its death. Nothing is heard later than now,
 * though two CPUs may find the same time. */
CW_INLINE void cw_liveness_excuse(const struct cw_reply* r, struct cw_pair* pair, __u64 away) {
  const __u32 live = pair->live_mask;
  const __u64 t2 = r->t2;
  CW_UNROLL(16)
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s) {
    __u64 heard = pair->slot[s].heard_ns + (away & -(__u64)(live >> s & 1));
    __s64 left = (__s64)(t2 - heard);
    pair->slot[s].heard_ns = heard + (left & (left >> 63));
  }
}

/* First pass, for each slot in use, in three steps (each a function of its own in BPF, for the verifier's sake).
 * Step 1: takes the bitmap's news into progress and revive. Returns bit i = round - i was sent, was proven received by
 * another slot, and did not arrive on this one; asked of slots in state UP and SUSPECT only. */
CW_INLINE __u32 cw_liveness_missed(const struct cw_reply* r, struct cw_pair* pair, struct cw_slot* slot, __u32 s) {
  __u32 rcvd = cw_liveness_rounds(r->rcvd, s);
  __u32 sent = cw_liveness_rounds(r->sent, s);
  __s32 behind;
  /* The first reply, or another life of the peer's clock. */
  if (!slot->heard_ns || (__s64)(r->t2 - slot->heard_ns) < -CW_CLOCK_STEP_NS) slot->heard_ns = r->t2;
  cw_liveness_advance(r, pair, slot, s, rcvd, sent);
  if (slot->state != CW_SLOT_UP && slot->state != CW_SLOT_SUSPECT) return 0;
  behind = cw_liveness_behind(r, pair, slot);
  if (behind <= 0) return 0;
  return sent & ~rcvd & cw_liveness_proven(r) & (behind >= CW_ROUNDS ? 0xff : (1u << behind) - 1);
}

/* Step 2, if step 1 found any: how many of them count. A slot that missed the whole window has older ones too. */
CW_INLINE __u32 cw_liveness_misses(const struct cw_reply* r, const struct cw_pair* pair, __u32 s, __u32 missed) {
  const struct cw_slot* slot = &pair->slot[s];
  __u32 silent = cw_liveness_silent_rounds(r, pair, slot, s);
  __s32 behind = cw_liveness_behind(r, pair, slot);
  __u32 misses = cw_popcount16(missed);
  /* Round 0 of the window may not have been sent on this slot yet. */
  if ((missed | 1) == 0xff && behind > CW_ROUNDS) misses = (__u32)behind;
  return misses < silent ? misses : silent;
}

/* Step 3: what follows; enum cw_liveness_finding. Changes nothing. */
CW_INLINE __u32 cw_liveness_finding(const struct cw_reply* r, const struct cw_pair* pair, const struct cw_slot* slot,
                                    __u32 s, __u32 missed, __u32 misses) {
  __s32 behind = cw_liveness_behind(r, pair, slot);
  if (slot->state == CW_SLOT_NEW) return cw_liveness_rounds(r->rcvd, s) ? CW_FOUND_ARRIVED : 0;
  if (slot->state == CW_SLOT_DEAD)
    return behind < CW_ROUNDS && r->revive_limit && slot->revive >= r->revive_limit ? CW_FOUND_REVIVED : 0;
  if (!misses) return slot->state == CW_SLOT_SUSPECT && behind < CW_ROUNDS ? CW_FOUND_CLEARED : 0;
  if (!r->miss_limit || misses < r->miss_limit)
    return (slot->state == CW_SLOT_UP ? CW_FOUND_SUSPECT : 0) | (misses + 1 == r->miss_limit ? CW_FOUND_NEAR : 0);
  if ((missed | 1) == 0xff && behind >= (__s32)pair->half_dead_rounds)
    return CW_FOUND_NEAR | CW_FOUND_LAG | CW_FOUND_LAG_LONG;
  return CW_FOUND_NEAR | CW_FOUND_LAG;
}

/* Applies step 3's finding. Returns the state that the slot left if that is news (a birth or a revival), else -1. */
CW_INLINE int cw_liveness_apply(const struct cw_reply* r, struct cw_pair* pair, struct cw_slot* slot, __u32 s,
                                __u32 finding) {
  __u32 from = CW_SLOT_SUSPECT;
  if (finding & CW_FOUND_SUSPECT) {
    if (cw_slot_transition(slot, CW_SLOT_UP, CW_SLOT_SUSPECT)) slot->changed_ns = r->now;
    return -1;
  }
  if (!(finding & (CW_FOUND_ARRIVED | CW_FOUND_REVIVED | CW_FOUND_CLEARED))) return -1;
  if (finding & CW_FOUND_ARRIVED) from = CW_SLOT_NEW;
  if (finding & CW_FOUND_REVIVED) from = CW_SLOT_DEAD;
  if (!cw_slot_transition(slot, from, CW_SLOT_UP)) return -1;
  slot->changed_ns = r->now;
  slot->revive = 0;
  __sync_fetch_and_or(&pair->live_mask, 1u << s);
  return from == CW_SLOT_SUSPECT ? -1 : (int)from;
}

/* Declares a slot dead. Returns the state that it left, -1 if it was not alive. */
CW_INLINE int cw_liveness_kill(const struct cw_reply* r, struct cw_pair* pair, struct cw_slot* slot, __u32 s) {
  __u32 from = slot->state;
  if (from != CW_SLOT_UP && from != CW_SLOT_SUSPECT) return -1;
  if (!cw_slot_transition(slot, from, CW_SLOT_DEAD)) return -1;
  slot->changed_ns = r->now;
  slot->deaths++;
  slot->revive = 0;
  __sync_fetch_and_and(&pair->live_mask, ~(1u << s));
  return (int)from;
}

/* Second pass. near, lag, lag_long: the slots with that finding. Returns whether half of the live slots or more lag
 * together, or did so just now: what stopped together does not come back in the same reply, and the last one would
 * stand alone as the only laggard. */
CW_INLINE int cw_liveness_half(const struct cw_reply* r, struct cw_pair* pair, __u32 near) {
  if (2 * cw_popcount16(near) >= cw_popcount16(pair->live_mask)) {
    pair->lag_round = r->round;
    return 1;
  }
  return pair->lag_round && r->round - pair->lag_round <= CW_LAG_MEMORY;
}

/* The slots to declare dead. */
CW_INLINE __u32 cw_liveness_dead(int half, __u32 lag, __u32 lag_long) { return half ? lag_long : lag; }

#endif
