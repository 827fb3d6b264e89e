/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Flows that look after themselves. Without an agent nobody probes, so no path is called dead (bpf/liveness.h); nor is
 * one between two rounds of a pair that is probed slowly. What is left is each flow's own answers. A flow that has
 * packets under way, sends on, and is not answered for much longer than it ever had to wait goes to another live slot,
 * and, if that is no better, to the next after twice as long. It stays where it is answered until an agent is back,
 * also when the lease is over. What is sent again for want of an answer, by the RDMA stack's own timer, tells as much,
 * once it was in vain: a stack that stalls by itself is answered then, and a short timer is soon over a second time. A
 * flow of answers leaves when the peer sends again what had arrived, twice, while this side answered, and asked for
 * nothing new between them: who asks for more has got answers, if later than its timer has it. What a NAK asked for is
 * neither sign: it is an answer, packets that came late are asked for, too, and all that followed them comes again at
 * the flow's pace.
 * Where no acknowledgement was ever seen (the agent died before it knew whose they are) only what is sent again counts.
 * Where flows left every slot of a pair that they may be given to within a while, no path is to blame: they stay.
 * All of this only where the agent is gone, or stuck for very long: see cw_is_alone(). An agent that stops sets each
 * pair's round_jiffies ahead by what its successor's start may take: until then no pair is blind.
 * BPF only. */
#ifndef CW_BPF_BLIND_H
#define CW_BPF_BLIND_H

#include "bpf/steer.h"

#define CW_BLIND_MIN_JIFFIES 2
#define CW_BLIND_SURE_JIFFIES 2 /* the sender runs for so long: it is not this host that stood still */
#define CW_BLIND_MOST_DOUBLINGS 7
#define CW_BLIND_ASKED_JIFFIES 64  /* after a NAK, in whichever direction, packets are sent again for so long */
#define CW_BLIND_AGAIN_JIFFIES 8   /* sent again so long after the first time: the timer has fired twice */
#define CW_BLIND_ONCE_JIFFIES 2048 /* and so long: the first time was about something else */
#define CW_BLIND_STAY 40           /* times as long as makes a pair blind: no slot is left for one that was left then */
#define CW_HEARD_UNIT 64           /* of heard_gap, to a jiffy */
#define CW_HEARD_FORGET 8          /* by 1/256 per answer whose PSN is a multiple of 16, and at least by one unit */

/* An answer to the flow's requests has come, of whatever kind, up to this PSN. How long the first took nobody knows. */
static __always_inline void cw_heard(struct cw_tx_flow* f, __u64 jiffies, __u32 acked) {
  __u32 gap = (__u32)(__u16)((__u32)jiffies - f->heard_jiffies) * CW_HEARD_UNIT;
  __u32 known = f->heard_gap;
  if (gap > 0xffff) gap = 0xffff;
  if (!f->acked_valid) gap = 0;
  if (!(acked & 15)) known -= (known + (1u << CW_HEARD_FORGET) - 1) >> CW_HEARD_FORGET;
  f->heard_gap = gap > known ? gap : known;
  f->heard_jiffies = jiffies;
}

/* Jiffies since the pair's newest round began; below 0 while a successor of the agent is awaited. */
static __always_inline __s64 cw_since_round(const struct cw_pair* pair, __u64 jiffies) {
  return (__s64)(jiffies - pair->round_jiffies);
}

static __always_inline int cw_pair_is_blind(const struct cw_ctl* ctl, const struct cw_pair* pair, __u64 jiffies) {
  return ctl->blind_jiffies && cw_since_round(pair, jiffies) > (__s64)ctl->blind_jiffies;
}

/* Nothing is written: there is no room, or another processor's; only which error it is counts. */
static __noinline int cw_agent_is_there(struct __sk_buff* skb) {
  __u8 nothing = 0;
  return (int)bpf_perf_event_output(skb, &cw_presence, 0, &nothing, sizeof(nothing)) != -ENOENT;
}

/* Of a blind pair: whether its agent is gone, or stuck. One that is there and does not probe waits for a processor, as
 * do the flows' own stack and whoever is to hear their answers: a host that stands still accuses no path. */
static __noinline int cw_is_alone(struct __sk_buff* skb, struct cw_ctl* ctl, const struct cw_pair* pair,
                                  __u64 jiffies) {
  __u32 alone;
  if (!ctl || !pair) return 0;
  alone = !ctl->stuck_jiffies || cw_since_round(pair, jiffies) > (__s64)ctl->stuck_jiffies || !cw_agent_is_there(skb);
  if (ctl->alone != alone) ctl->alone = alone;
  return alone;
}

static __always_inline int cw_is_blind(struct __sk_buff* skb, const struct cw_egress* e) {
  return (e->may & CW_ACTS(CW_CAP_FAILOVER)) && cw_pair_is_blind(e->ctl, e->pair, e->jiffies) &&
         cw_is_alone(skb, e->ctl, e->pair, e->jiffies);
}

static __always_inline int cw_asked_lately(const struct cw_tx_flow* f, __u64 jiffies) {
  return (__u16)((__u32)jiffies - f->nak_jiffies) <= CW_BLIND_ASKED_JIFFIES;
}

/* The flow's `unanswered`: how often its answers were missed, below what the peer had asked for then. */
#define CW_MISSED_TIMES 3
#define CW_MISSED_TWICE 2

/* Six bits, what fits there, that change when a peer asks for more: of the PSN that it will ask for next. */
static __always_inline __u32 cw_asked_so_far(__u32 next) { return (next * 0x9e3779b1u >> 26) << 2; }

/* Whether a sign is the second of its kind: the first set the flow's doubt, some time ago. asked: cw_asked_so_far, with
 * which the first must agree. */
static __always_inline int cw_doubted_before(struct cw_tx_flow* f, __u64 jiffies, __u32 asked) {
  __u32 doubted = (__u16)((__u32)jiffies - f->doubt_jiffies);
  __u32 times = f->unanswered & CW_MISSED_TIMES;
  if (!times || doubted > CW_BLIND_ONCE_JIFFIES || f->unanswered != (asked | times)) {
    f->unanswered = asked | 1;
    f->doubt_jiffies = jiffies;
    return 0;
  }
  return doubted >= CW_BLIND_AGAIN_JIFFIES;
}

enum cw_sign {
  CW_SIGN_REQUEST = 1,   /* the packet is a request, and others of the flow are under way */
  CW_SIGN_DUPLICATE = 2, /* it was sent before */
};

/* Whether a flow has waited for longer than its path explains. A function of its own to the verifier, too, which looks
 * at it once. blind: jiffies without a probe that make a pair blind. */
__noinline int cw_unheard(struct cw_tx_flow* f, __u64 jiffies, __u32 signs, __u32 blind) {
  __u32 quiet, doubted, usual, doublings, duplicate, missed, asked;
  __u64 moved;
  if (!f || (f->flags & CW_STEER_HARD_LOCKED)) return 0;
  quiet = (__u16)((__u32)jiffies - f->heard_jiffies);
  doubted = (__u16)((__u32)jiffies - f->doubt_jiffies);
  usual = f->heard_gap / CW_HEARD_UNIT;
  doublings = f->blind_moves < CW_BLIND_MOST_DOUBLINGS ? f->blind_moves : CW_BLIND_MOST_DOUBLINGS;
  moved = jiffies - f->moved_jiffies;
  duplicate = (signs & CW_SIGN_DUPLICATE) && !cw_asked_lately(f, jiffies);
  /* Signs without an answer's time: a while after each move. */
  missed = f->unanswered & CW_MISSED_TIMES;
  asked = f->unanswered - missed;
  if (missed == CW_MISSED_TWICE || (duplicate && !f->acked_valid && cw_doubted_before(f, jiffies, asked)))
    return moved > (__u32)CW_BLIND_MIN_JIFFIES << doublings;
  if (!(signs & CW_SIGN_REQUEST) || !f->acked_valid) return 0;
  /* However long it once waited, half of what makes a pair blind is enough. */
  usual = 2 * usual < blind / 2 ? usual : blind / 4;
  if (quiet <= (duplicate ? usual + 1 : 2 * usual + CW_BLIND_MIN_JIFFIES) << doublings) return 0;
  if (doubted > quiet) { /* of a silence before */
    f->doubt_jiffies = jiffies;
    doubted = 0;
  }
  if (duplicate && quiet > blind) return 1; /* a long timer is not waited for twice */
  return duplicate ? 3 * doubted >= quiet : doubted >= CW_BLIND_SURE_JIFFIES;
}

/* Not for slots that flows left lately: one that left them all has learned that it is not the path. */
static __noinline int cw_leave_blind(struct cw_egress* e, struct cw_tx_flow* f, __u32 psn) {
  struct cw_pair* pair = e->pair;
  __u32 own = e->slot < CW_MAX_SLOTS ? 1u << e->slot : 0;
  __u32 now = (__u16)(e->jiffies >> CW_SHUNNED_SHIFT);
  __u32 since = (__u16)(now - (pair->shunned >> 16));
  __u32 shunned = since < (CW_BLIND_STAY * e->ctl->blind_jiffies) >> CW_SHUNNED_SHIFT ? pair->shunned & 0xffff : 0;
  __u32 others = pair->live_mask & ~own;
  __u32 to;
  /* Where none of them is left, those that only watch a port are none either. */
  if (others & pair->assign_mask) others &= pair->assign_mask;
  to = cw_next_slot(e->ctl, pair, cw_refuge(pair, e->slot, others & ~shunned));
  f->unanswered = 0;
  if (to == CW_SLOT_NONE) return others ? 0 : cw_count(CW_COUNT_no_live_slot);
  pair->shunned = now << 16 | shunned | own;
  if (f->blind_moves < CW_BLIND_MOST_DOUBLINGS) f->blind_moves++;
  f->want_slot = CW_SLOT_NONE;
  f->heard_jiffies = e->jiffies; /* a silence that a move ended teaches nothing: it may have been the path's */
  cw_move(e, f, to, cw_get_slot(pair, to)->port, psn, CW_MOVE_BLIND);
  return cw_count(CW_COUNT_moves_blind);
}

/* The peer sends again what had arrived: it did not hear of it, or of something that was lost before. next: the PSN
 * that it will ask for next. */
static __noinline int cw_sent_again(const struct cw_packet* p, __u32 peer_qpn, __u32 next) {
  struct cw_ctl* ctl = cw_get_ctl();
  struct cw_flow_key key;
  struct cw_tx_flow* f;
  struct cw_pair* pair;
  __u32 asked;
  __u64 now;
  cw_flow_key_back(&key, p, peer_qpn);
  f = bpf_map_lookup_elem(&cw_tx_flows, &key);
  if (!f || !ctl) return 0;
  pair = cw_get_pair(f->pair);
  now = bpf_jiffies64();
  if (!pair || !ctl->alone || !cw_pair_is_blind(ctl, pair, now)) return 0;
  if (cw_asked_lately(f, now)) return 0;
  asked = cw_asked_so_far(next);
  if (!cw_doubted_before(f, now, asked)) return 0;
  /* What was not sent since cannot have died. */
  if (now - f->flow.last_seen_jiffies <= (__u16)((__u32)now - f->doubt_jiffies))
    f->unanswered = asked | CW_MISSED_TWICE;
  return 0;
}

#endif
