/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The books that both ends keep of probe rounds: what was sent, what arrived, in which session. All slots of a pair
 * share a round number. Pure: compiles for BPF and for the host; time comes in as an argument. Rounds and sessions are
 * compared as serial numbers (RFC 1982). Several CPUs may mark at once; the rest are plain stores of newer values. */
#ifndef CW_BPF_ROUNDS_H
#define CW_BPF_ROUNDS_H

#include "bpf/counters.h"

#define CW_SHUNNED_SHIFT 6  /* the unit of cw_pair.shunned's time, in bits of jiffies */
#define CW_SHUNNED_PROBED 4 /* of that unit */

CW_INLINE __u32 cw_popcount16(__u32 v) {
  v = v - ((v >> 1) & 0x5555);
  v = (v & 0x3333) + ((v >> 2) & 0x3333);
  v = (v + (v >> 4)) & 0x0f0f;
  return (v + (v >> 8)) & 0x1f;
}

/* Index of the lowest bit set; 16 for none. */
CW_INLINE __u32 cw_lowest_bit(__u32 v) { return cw_popcount16(~v & (v - 1) & 0xffff); }

/* Index of the k-th bit set (from 0) of a 16-bit mask with more than k bits. */
CW_INLINE __u32 cw_kth_bit(__u32 mask, __u32 k) {
  __u32 at = 0;
  CW_UNROLL(4)
  for (__u32 width = 8; width; width >>= 1) {
    __u32 below = cw_popcount16((mask >> at) & ((1u << width) - 1));
    __u32 skip = (__u32)((__s32)(below - 1 - k) >> 31) & 1; /* below <= k */
    k -= below * skip;                                      /* no masks of one bit, see bpf/icrc.h */
    at += width * skip;
  }
  return at & 15;
}

CW_INLINE __s32 cw_round_diff(__u32 a, __u32 b) { return (__s32)(a - b); }

CW_INLINE __u32 cw_round_max(__u32 a, __u32 b) { return cw_round_diff(a, b) > 0 ? a : b; }

/* The mask of a round, 0 if the entry holds another. Without a branch, for the verifier's sake. */
CW_INLINE __u32 cw_round_mask_of(const struct cw_round_mask* entry, __u32 round) {
  __u64 differs = entry->round ^ round;
  return entry->mask & (__u32)(0 - ((differs - 1) >> 63));
}

/* Adds a slot to the mask of a round. Returns 1 if it was there already or the entry holds a newer round, -1 if other
 * CPUs won every time, 0 when done. The entry is changed as one 64-bit word, so that no bit of another CPU is lost. */
CW_INLINE int cw_round_mark(struct cw_round_mask* entry, __u32 round, __u32 slot) {
  volatile cw_word64* word = (volatile cw_word64*)entry;
  __u64 bit = 1ull << (32 + (slot & 15));
  CW_NO_UNROLL
  for (int tries = 0; tries < 8; ++tries) {
    __u64 old = *word;
    __u64 next = old | bit;
    if ((__u32)old != round) {
      if (cw_round_diff((__u32)old, round) > 0) return 1;
      next = round | bit;
    } else if (old & bit) {
      return 1;
    }
    if (__sync_val_compare_and_swap(word, old, next) == old) return 0;
  }
  return -1;
}

/* Empty masks of a round before all that count. Of round 0 they would be newer than every second number. */
CW_INLINE void cw_rounds_clear(struct cw_round_mask* masks, __u32 round) {
  CW_NO_UNROLL
  for (__u32 i = 0; i < CW_ROUNDS; ++i) *(volatile cw_word64*)&masks[i] = (__u32)(round - CW_ROUNDS);
}

/* The sender's books begin anew. Progress in the old numbers would pass for life in the new ones. */
CW_INLINE void cw_rounds_restart(struct cw_pair* pair, __u32 session, __u32 round) {
  pair->tx_session = session;
  pair->cur_round = round;
  pair->floor_round = round;
  pair->lag_round = 0;
  pair->round_ns = 0;
  CW_NO_UNROLL
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s) {
    pair->slot[s].progress_round = 0;
    pair->slot[s].acked_round = 0;
  }
  cw_rounds_clear(pair->sent, round);
}

/* A request leaves at now. A session of its own may number its rounds as it likes; within one they only grow. */
CW_INLINE void cw_rounds_leave(struct cw_pair* pair, struct cw_probe_tx* tx, __u32 session, __u32 round, __u32 slot,
                               __u64 now, __u64 jiffies) {
  __u32 at = round & (CW_TX_ROUNDS - 1);
  slot &= CW_MAX_SLOTS - 1;
  if (session != pair->tx_session) cw_rounds_restart(pair, session, round);
  if (!pair->round_ns || cw_round_diff(round, pair->cur_round) > 0) {
    /* Rounds before a pause of the prober do not count: nobody asked. */
    if (!pair->round_ns || now - pair->round_ns > pair->interval_ns * 5ull / 2) pair->floor_round = round;
    pair->cur_round = round;
    pair->round_ns = now;
    pair->round_jiffies = jiffies;
    /* Probes tell again; not those right after a flow left, which a starved prober sends now and then. */
    if ((__u16)((jiffies >> CW_SHUNNED_SHIFT) - (pair->shunned >> 16)) > CW_SHUNNED_PROBED) pair->shunned = 0;
  }
  tx->t1[slot][at] = now;
  tx->round[slot][at] = round;
  cw_round_mark(&pair->sent[round & (CW_ROUNDS - 1)], round, slot);
}

enum cw_admission { CW_ADMITTED, CW_ADMITTED_RESTART, CW_REPLAYED };

/* A request that left the bitmap's window while it queued: each path keeps order, so only newer rounds are new. */
CW_INLINE enum cw_admission cw_rounds_admit_late(const struct cw_pair* pair, __u32 round, __u32 slot) {
  if (cw_round_diff(round, pair->peer_round - CW_TX_ROUNDS) <= 0) return CW_REPLAYED;
  return cw_round_diff(round, pair->slot[slot].peer_round) > 0 ? CW_ADMITTED : CW_REPLAYED;
}

/* Would cw_rounds_admit() call a request of these numbers a replay? Changes nothing, so that it may be asked before
 * the MAC is computed: books only go on, so what is known once is known for ever. */
CW_INLINE int cw_rounds_known(const struct cw_pair* pair, __u32 session, __u32 round, __u32 slot) {
  const struct cw_round_mask* entry = &pair->rcvd[round & (CW_ROUNDS - 1)];
  __u64 was;
  slot &= CW_MAX_SLOTS - 1;
  if (session != pair->peer_session) return pair->peer_session && cw_round_diff(session, pair->peer_session) < 0;
  if (cw_round_diff(round, pair->peer_round - CW_ROUNDS) <= 0)
    return cw_rounds_admit_late(pair, round, slot) == CW_REPLAYED;
  was = *(const volatile cw_word64*)entry;
  if ((__u32)was != round) return cw_round_diff((__u32)was, round) > 0;
  return was >> (32 + slot) & 1;
}

/* A verified request of the peer arrives. Sessions are start times: an older one is a replay, a newer one begins with
 * empty books. A request that has arrived before is a replay too, as is one so old that this cannot be told. */
CW_INLINE enum cw_admission cw_rounds_admit(struct cw_pair* pair, __u32 session, __u32 round, __u32 slot) {
  enum cw_admission admitted = CW_ADMITTED;
  slot &= CW_MAX_SLOTS - 1;
  if (session != pair->peer_session) {
    if (pair->peer_session && cw_round_diff(session, pair->peer_session) < 0) return CW_REPLAYED;
    cw_rounds_clear(pair->rcvd, round);
    CW_NO_UNROLL
    for (__u32 s = 0; s < CW_MAX_SLOTS; ++s) pair->slot[s].peer_round = round - CW_TX_ROUNDS;
    pair->peer_round = round;
    pair->peer_session = session;
    admitted = CW_ADMITTED_RESTART;
  }
  if (cw_round_diff(round, pair->peer_round - CW_ROUNDS) <= 0)
    admitted = cw_rounds_admit_late(pair, round, slot);
  else if (cw_round_mark(&pair->rcvd[round & (CW_ROUNDS - 1)], round, slot))
    admitted = CW_REPLAYED;
  if (admitted == CW_REPLAYED) return CW_REPLAYED;
  if (cw_round_diff(round, pair->peer_round) > 0) pair->peer_round = round;
  if (cw_round_diff(round, pair->slot[slot].peer_round) > 0) pair->slot[slot].peer_round = round;
  return admitted;
}

#endif
