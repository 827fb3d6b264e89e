/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Flows that look after themselves. Without an agent nobody probes, so no path is called dead (bpf/liveness.h); nor is
 * one between two rounds of a pair that is probed slowly. What is left is each flow's own answers. A flow that has
 * packets under way, sends on, and is not answered for much longer than it ever had to wait goes to another live slot,
 * and, if that is no better, to the next after twice as long. What is sent again for want of an answer, by the RDMA
 * stack's own timer, is enough by itself. It stays where it is answered until an agent is back, also when the lease is
 * over. A flow of answers leaves when the peer sends again what had arrived. What a NAK asked for is neither sign: it
 * is an answer, packets that came late are asked for, too, and all that followed them comes again at the flow's pace.
 * Where no acknowledgement was ever seen (the agent died before it knew whose they are) only what is sent again counts.
 * BPF only. */
#ifndef CW_BPF_BLIND_H
#define CW_BPF_BLIND_H

#include "bpf/steer.h"

#define CW_BLIND_MIN_JIFFIES 2
#define CW_BLIND_SURE_JIFFIES 2 /* the sender runs for so long: it is not this host that stood still */
#define CW_BLIND_MOST_DOUBLINGS 7
#define CW_BLIND_ASKED_JIFFIES 64 /* after a NAK, in whichever direction, packets are sent again for so long */
#define CW_HEARD_UNIT 64          /* of heard_gap, to a jiffy */
#define CW_HEARD_FORGET 8         /* by 1/256 per answer, and at least by one unit */

/* An answer to the flow's requests has come, of whatever kind. */
static __always_inline void cw_heard(struct cw_tx_flow* f, __u64 jiffies) {
  __u32 gap = (__u32)(__u16)((__u32)jiffies - f->heard_jiffies) * CW_HEARD_UNIT;
  __u32 known = f->heard_gap;
  if (gap > 0xffff) gap = 0xffff;
  known -= (known + (1u << CW_HEARD_FORGET) - 1) >> CW_HEARD_FORGET;
  f->heard_gap = gap > known ? gap : known;
  f->heard_jiffies = jiffies;
}

static __always_inline int cw_pair_is_blind(const struct cw_ctl* ctl, const struct cw_pair* pair, __u64 jiffies) {
  return ctl->blind_jiffies && jiffies - pair->round_jiffies > ctl->blind_jiffies;
}

static __always_inline int cw_is_blind(const struct cw_egress* e) {
  return (e->may & CW_ACTS(CW_CAP_FAILOVER)) && cw_pair_is_blind(e->ctl, e->pair, e->jiffies);
}

static __always_inline int cw_asked_lately(const struct cw_tx_flow* f, __u64 jiffies) {
  return (__u16)((__u32)jiffies - f->nak_jiffies) <= CW_BLIND_ASKED_JIFFIES;
}

/* Whether the packet's flow has waited for longer than its path explains. */
static __always_inline int cw_unheard(const struct cw_egress* e, struct cw_tx_flow* f, const struct cw_packet* p,
                                      int duplicate) {
  __u32 quiet = (__u16)((__u32)e->jiffies - f->heard_jiffies);
  __u32 doubted = (__u16)((__u32)e->jiffies - f->doubt_jiffies);
  __u32 limit = 2u * f->heard_gap / CW_HEARD_UNIT + CW_BLIND_MIN_JIFFIES;
  __u32 doublings = f->blind_moves < CW_BLIND_MOST_DOUBLINGS ? f->blind_moves : CW_BLIND_MOST_DOUBLINGS;
  if (f->flags & CW_STEER_HARD_LOCKED) return 0;
  duplicate &= !cw_asked_lately(f, e->jiffies);
  if (duplicate) limit = 1;
  /* Signs without an answer's time: a while after each move. */
  if (f->unanswered || (duplicate && !f->acked_valid))
    return e->jiffies - f->moved_jiffies > (__u32)CW_BLIND_MIN_JIFFIES << doublings;
  if (!(p->op & CW_OP_REQ) || !f->acked_valid || e->nothing_in_flight || quiet <= limit << doublings) return 0;
  if (doubted > quiet) { /* of a silence before */
    f->doubt_jiffies = e->jiffies;
    doubted = 0;
  }
  return duplicate || doubted >= CW_BLIND_SURE_JIFFIES;
}

/* Slots that flows left already come last. */
static __noinline int cw_leave_blind(struct cw_egress* e, struct cw_tx_flow* f, __u32 psn) {
  struct cw_pair* pair = e->pair;
  __u32 own = e->slot < CW_MAX_SLOTS ? 1u << e->slot : 0;
  __u32 live = pair->live_mask & ~own;
  __u32 to;
  if (!(live & ~pair->shunned)) pair->shunned = 0;
  to = cw_next_slot(e->ctl, pair, cw_refuge(pair, e->slot, live & ~pair->shunned));
  f->unanswered = 0;
  if (to == CW_SLOT_NONE) return cw_count(CW_COUNT_no_live_slot);
  __sync_fetch_and_or(&pair->shunned, own);
  if (f->blind_moves < CW_BLIND_MOST_DOUBLINGS) f->blind_moves++;
  f->want_slot = CW_SLOT_NONE;
  f->heard_jiffies = e->jiffies;
  cw_move(e, f, to, cw_get_slot(pair, to)->port, psn, CW_MOVE_BLIND);
  return cw_count(CW_COUNT_moves_blind);
}

/* The peer sends again what had arrived: it did not hear of it, or of something that was lost before. */
static __noinline int cw_sent_again(const struct cw_packet* p, __u32 peer_qpn) {
  struct cw_ctl* ctl = cw_get_ctl();
  struct cw_flow_key key;
  struct cw_tx_flow* f;
  struct cw_pair* pair;
  __u64 now;
  cw_flow_key_back(&key, p, peer_qpn);
  f = bpf_map_lookup_elem(&cw_tx_flows, &key);
  if (!f || !ctl) return 0;
  pair = cw_get_pair(f->pair);
  now = bpf_jiffies64();
  if (!pair || !cw_pair_is_blind(ctl, pair, now)) return 0;
  if (cw_asked_lately(f, now)) return 0;
  f->unanswered = 1;
  return 0;
}

#endif
