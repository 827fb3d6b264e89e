/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Where a transmitted packet goes: assignment of new flows, failover, pending moves, and the rewrite. BPF only. */
#ifndef CW_BPF_STEER_H
#define CW_BPF_STEER_H

#include "bpf/dataplane.h"
#include "bpf/turn.h"

#define CW_MARK_MAX_AGE 64 /* rounds after which an unresolved mark is given up */
/* A held flow waits for the difference of the two paths' newest delays, what both were seen to change by, and this. */
#define CW_HOLD_MARGIN_NS 50000
/* More is not waited for: a pause or a go-back-N costs less, and the shortest usual timers of RC are 67 ms. */
#define CW_HOLD_MOST_NS 20000000

/* What egress knows while it decides about one packet. */
struct cw_egress {
  const struct cw_flow_key* key; /* in the packet's record */
  struct cw_ctl* ctl;
  struct cw_pair* pair;
  __u64 jiffies;
  __u32 may; /* cw_ctl.mode, less what the pair and the flow withhold */
  __u32 nothing_in_flight;
  __u32 slot; /* whose path this packet would take */
  __u32 lease_over;
};

/* Not 0: packets may be rewritten. */
static __always_inline __u32 cw_acting(const struct cw_egress* e) { return e->may & CW_ACTS_ANY; }

/* 1: no agent has renewed the lease in time; nothing new is steered, and what is goes back to its native port. Without
 * a branch: old verifiers follow each one through all that comes behind it. */
static __always_inline __u32 cw_lease_over(const struct cw_ctl* ctl, __u64 jiffies) {
  __u64 lease = ctl->lease_jiffies, over = ((lease - jiffies) & (lease | (0 - lease))) >> 63;
  CW_OPAQUE(over);
  return over & 1;
}

/* The slots of a mask in turn, over all pairs: slots are numbered by their hops, so the flows of a host spread over the
 * switches whatever their peers and QPNs are, and hosts with neighbouring addresses begin next to each other. A host's
 * own flows go far apart, or those of neighbours with few flows each would overlap. A flow without a choice takes no
 * turn: flows within the rack would unsettle the order of those that leave it. CW_SLOT_NONE if the mask is empty. */
static __always_inline __u32 cw_next_slot(struct cw_ctl* ctl, const struct cw_pair* pair, __u32 mask) {
  __u32 n, turn = 0;
  mask &= 0xffff;
  n = cw_popcount16(mask);
  if (!n) return CW_SLOT_NONE;
  if (n > 1) turn = pair->key.local[15] + cw_turn_offset((__u32)__sync_fetch_and_add(&ctl->turn, 1) % n, n);
  return cw_kth_bit(mask, turn % n);
}

/* One of the mask's slots for a flow of answers, which load nothing: by its QPN, so that they take no turn either. */
static __always_inline __u32 cw_slot_for_answers(__u32 dqpn, __u32 mask) {
  __u32 n;
  mask &= 0xffff;
  n = cw_popcount16(mask);
  return n ? cw_kth_bit(mask, dqpn % n) : CW_SLOT_NONE;
}

static __always_inline void cw_emit_move(const struct cw_flow_key* key, const struct cw_ev_move* what) {
  struct cw_ev_move* ev = bpf_ringbuf_reserve(&cw_event_ring, sizeof(*ev), 0);
  if (!ev) {
    cw_count(CW_COUNT_event_ring_full);
    return;
  }
  *ev = *what;
  ev->key = *key;
  ev->ns = cw_now();
  bpf_ringbuf_submit(ev, 0);
}

static __always_inline void cw_emit_flow_move(const struct cw_egress* e, const struct cw_tx_flow* f, __u32 to_slot,
                                              __u16 to_port, __u32 psn, __u32 reason, __u32 dry) {
  struct cw_ev_move what = {
      .type = CW_EV_MOVE,
      .pair = f->pair,
      .from_slot = e->slot,
      .to_slot = to_slot,
      .from_port = cw_acting(e) ? f->port : 0,
      .to_port = to_port,
      .psn = psn,
      .reason = reason,
      .dry = dry,
  };
  cw_emit_move(e->key, &what);
}

static __always_inline void cw_move(struct cw_egress* e, struct cw_tx_flow* f, __u32 to_slot, __u16 to_port, __u32 psn,
                                    __u32 reason) {
  cw_emit_flow_move(e, f, to_slot, to_port, psn, reason, 0);
  f->slot = to_slot;
  f->port = to_port;
  f->moves++;
  f->move_psn = psn;
  f->reason = reason;
  f->moved_jiffies = e->jiffies;
  f->mark_round = 0; /* what was sent on the old path says nothing about the new one */
  f->hold_ns = 0;
  e->slot = to_slot;
}

/* Where flows of a path that fails may go, the best that there are: its backups, else any assignable slot, else one
 * that the agent keeps free (damped, say), which is better than a dead one. own: CW_SLOT_NONE if not known. Without
 * branches, see cw_lease_over(). */
static __always_inline __u32 cw_refuge(const struct cw_pair* pair, __u32 own, __u32 live) {
  __u32 known = 0 - ((own - CW_MAX_SLOTS) >> 31), mask, best;
  live &= 0xffff;
  mask = live & pair->assign_mask;
  mask |= live & (0 - ((mask - 1) >> 31)); /* all of live where mask is 0 */
  best = mask & pair->backup[own & (CW_MAX_SLOTS - 1)] & known;
  best |= mask & (0 - ((best - 1) >> 31));
  CW_OPAQUE(best);
  return best;
}

/* The flow's path is dead. Where that may only be observed: says once per death where it would go. */
static __noinline int cw_leave_dead(struct cw_egress* e, struct cw_tx_flow* f, __u32 psn) {
  struct cw_pair* pair = e->pair;
  struct cw_slot* own = cw_get_slot(pair, e->slot);
  __u32 live = pair->live_mask & ~(1u << (e->slot & (CW_MAX_SLOTS - 1)));
  __u32 acts = e->may & CW_ACTS(CW_CAP_FAILOVER);
  __u32 to;
  __u16 port;
  if (!acts && (!(e->may & CW_DECIDES(CW_CAP_FAILOVER)) || f->flow.dry_deaths == own->deaths)) return 0;
  to = cw_next_slot(e->ctl, pair, cw_refuge(pair, e->slot, live));
  if (to == CW_SLOT_NONE) {
    if (acts) cw_count(CW_COUNT_no_live_slot);
    return 0;
  }
  port = cw_get_slot(pair, to)->port;
  if (acts) {
    cw_move(e, f, to, port, psn, CW_MOVE_DEAD);
    return cw_count(CW_COUNT_moves_dead);
  }
  f->flow.dry_deaths = own->deaths;
  cw_emit_flow_move(e, f, to, port, psn, CW_MOVE_DEAD, 1);
  return 0;
}

/* For how long the first packets on slot `to` have to wait so that they arrive behind those under way; 0: not known, or
 * too long. Both raw_ns have the peer's clock less ours in them, which the difference has not. */
static __always_inline __u64 cw_hold_for(const struct cw_egress* e, __u32 to) {
  const struct cw_slot* here = cw_get_slot(e->pair, e->slot);
  const struct cw_slot* there = cw_get_slot(e->pair, to);
  __s64 wait = (__s64)(here->raw_ns - there->raw_ns);
  if (!e->pair->departs || e->slot >= CW_MAX_SLOTS || to >= CW_MAX_SLOTS || !here->raw_ns || !there->raw_ns) return 0;
  if (wait < 0) wait = 0;
  wait += (__s64)here->jump_ns + there->jump_ns + CW_HOLD_MARGIN_NS;
  return wait > CW_HOLD_MOST_NS ? 0 : (__u64)wait;
}

/* Whether a wished move may be made with this packet, and how; CW_MOVE_NONE = not yet. hold: for CW_MOVE_HELD. */
static __always_inline __u32 cw_move_chance(const struct cw_egress* e, struct cw_tx_flow* f, const struct cw_packet* p,
                                            __u64 hold) {
  __u64 last, now;
  if (e->nothing_in_flight && !(p->op & CW_OP_RESP)) return CW_MOVE_IDLE;
  if (f->hold_ns) return CW_MOVE_NONE; /* the last move is not over */
  if (hold) return CW_MOVE_HELD;
  last = f->last_tx_ns;
  now = cw_now();
  f->last_tx_ns = now;
  if (last && now - last > e->ctl->move_gap_ns) return CW_MOVE_GAP;
  return f->want_force ? CW_MOVE_FORCED : CW_MOVE_NONE;
}

/* Makes the agent's wish true where order allows it. With the lease over the wish is another: this flow, which is
 * steered, goes home, however long that takes, as no agent is left to say that a go-back-N is worth it; not to a path
 * that was dead when it was last looked at. One function for both, because 6.1's verifier can't follow two such. */
static __noinline int cw_try_wish(struct cw_egress* e, struct cw_tx_flow* f, const struct cw_packet* p) {
  __u32 home = e->lease_over && f->port;
  __u32 want = home ? f->native_slot : f->want_slot;
  __u16 port = home ? 0 : f->want_port;
  __u32 state = cw_get_slot(e->pair, want)->state;
  __u32 how;
  __u64 hold;
  /* The slot may have been given another port since the wish was made. */
  __u32 stale = port && port != cw_get_slot(e->pair, want)->port;
  __u32 unknown = want >= CW_MAX_SLOTS; /* a native port that is not probed is home all the same */
  if (home) {                           /* a wish of the agent that is gone */
    f->want_slot = CW_SLOT_NONE;
    f->want_force = 0;
  }
  if (unknown ? !home : state == CW_SLOT_DEAD || state == CW_SLOT_UNUSED || port == f->port || stale) {
    f->want_slot = CW_SLOT_NONE;
    f->last_tx_ns = 0;
    return 0;
  }
  hold = cw_hold_for(e, want);
  how = cw_move_chance(e, f, p, hold);
  if (how == CW_MOVE_NONE) return 0;
  f->want_slot = CW_SLOT_NONE;
  f->last_tx_ns = 0;
  cw_move(e, f, want, port, p->psn, home ? CW_MOVE_LEASE : how);
  if (how == CW_MOVE_HELD) f->hold_ns = bpf_ktime_get_ns() + hold;
  if (home) return cw_count(CW_COUNT_moves_lease);
  if (how == CW_MOVE_IDLE) return cw_count(CW_COUNT_moves_idle);
  if (how == CW_MOVE_HELD) return cw_count(CW_COUNT_moves_held);
  return cw_count(how == CW_MOVE_GAP ? CW_COUNT_moves_gap : CW_COUNT_moves_forced);
}

/* Packets of a flow that moved depart together once those under way have arrived; fq keeps packets of one departure
 * time in order. What a sender asked for itself stays if it is later. fq reads CLOCK_MONOTONIC, whatever local time is.
 */
static __always_inline void cw_hold(struct __sk_buff* skb, struct cw_tx_flow* f) {
  __u64 until = f->hold_ns;
  if (bpf_ktime_get_ns() >= until)
    f->hold_ns = 0;
  else if (skb->tstamp < until)
    skb->tstamp = until;
}

/* Data as a witness: notes a new PSN, the round and the slot. Its acknowledgement will prove that the slot was alive in
 * that round. A PSN sent before proves nothing, because an earlier copy may be what is acknowledged. */
static __always_inline void cw_mark(const struct cw_egress* e, struct cw_tx_flow* f, const struct cw_packet* p,
                                    int duplicate) {
  __u32 round = e->pair->cur_round;
  if (e->slot == CW_SLOT_NONE || duplicate || !(p->op & CW_OP_REQ) || p->opcode >> 5 != CW_TRANSPORT_RC) return;
  if (f->mark_round && f->mark_slot == e->slot && round - f->mark_round <= CW_MARK_MAX_AGE) return;
  f->mark_psn = p->psn;
  f->mark_slot = e->slot;
  f->mark_round = round;
}

/* Read in place where the packet is linear, which nearly all are: half the cost of the helper. Writing in place as well
 * would be faster still, but makes the kernel drop a cloned packet that it has no memory to copy. Returns 0 if done. */
static __always_inline int cw_load_icrc(struct __sk_buff* skb, __u32 icrc_off, __u32* icrc) {
  __u8* at = (__u8*)(long)skb->data + (icrc_off & 0x3fff);
  if (icrc_off <= 0x3fff && at + CW_ICRC_LEN <= (__u8*)(long)skb->data_end) {
    __builtin_memcpy(icrc, at, CW_ICRC_LEN);
    return 0;
  }
  return bpf_skb_load_bytes(skb, icrc_off, icrc, CW_ICRC_LEN);
}

/* What to xor a packet's ICRC with; 0: not known. distance: at most CW_ICRC_DISTANCE_MAX. changed: not 0. */
static __noinline __u32 cw_new_patch(struct cw_tx_flow* f, __u32 distance, __u32 changed) {
  __u32 pow, patch;
  CW_OPAQUE(distance);
  if (!f || distance > CW_ICRC_DISTANCE_MAX) return 0;
  pow = cw_icrc_pow[distance];
  if (!pow) return 0;
  patch = cw_icrc_patch(cw_icrc_pow[distance + 1], pow, changed);
  *(volatile __u64*)&f->patch = cw_icrc_patch_word(patch, distance, changed);
  return patch;
}

/* The flow label of what is steered over IPv6 is its source port, so that switches that hash on the label alone (RFC
 * 6438) see the same entropy. Neither ICRC nor UDP checksum cover it. */
static __noinline int cw_relabel(struct __sk_buff* skb, const struct cw_packet* p, __u32 port) {
  __be32 first = cw_be32(6u << 28 | (__u32)p->tos << 20 | (port & 0xffff));
  if (p->label == (port & 0xffff)) return 0;
  return bpf_skb_store_bytes(skb, p->l3_off, &first, sizeof(first), 0);
}

/* Writes another source port and the ICRC that goes with it. Returns 1 if the packet now has the port. */
static __always_inline int cw_rewrite(struct __sk_buff* skb, struct cw_tx_flow* f, const struct cw_packet* p,
                                      __u16 port) {
  __u32 distance = cw_icrc_distance(p->udp_len);
  __u32 udp_off = p->l4_off;
  __u32 icrc_off = udp_off + p->udp_len - CW_ICRC_LEN;
  __be16 old_port = cw_be16(p->sport), new_port = cw_be16(port);
  __u64 known = *(const volatile __u64*)&f->patch;
  __u32 patch, old_icrc, new_icrc;
  if (distance > CW_ICRC_DISTANCE_MAX) {
    cw_count(CW_COUNT_rewrite_too_long);
    return 0;
  }
  patch = cw_icrc_patch_is_for(known, distance, old_port ^ new_port) ? known >> 32
                                                                     : cw_new_patch(f, distance, old_port ^ new_port);
  /* With an odd length the ICRC would lie across the words of the UDP checksum; RoCE pads, so there is none. */
  if (!patch || (p->udp_check && (p->udp_len & 1))) goto failed;
  if (cw_load_icrc(skb, icrc_off, &old_icrc)) goto failed;
  new_icrc = old_icrc ^ patch;
  if (bpf_skb_store_bytes(skb, icrc_off, &new_icrc, sizeof(new_icrc), 0)) goto failed;
  /* Without the hash that it has: a connected socket's would pull the packet to the old path. */
  if (bpf_skb_store_bytes(skb, udp_off, &new_port, sizeof(new_port), BPF_F_INVALIDATE_HASH)) {
    bpf_skb_store_bytes(skb, icrc_off, &old_icrc, sizeof(old_icrc), 0);
    goto failed;
  }
  if (p->udp_check) {
    __u32 check_off = udp_off + __builtin_offsetof(struct cw_udp_hdr, check);
    bpf_l4_csum_replace(skb, check_off, old_port, new_port, BPF_F_MARK_MANGLED_0 | 2);
    bpf_l4_csum_replace(skb, check_off, old_icrc, new_icrc, BPF_F_MARK_MANGLED_0 | 4);
  }
  if (cw_is_ip6(p)) cw_relabel(skb, p, port);
  cw_count(CW_COUNT_rewritten);
  return 1;
failed:
  cw_count(CW_COUNT_rewrite_failed);
  return 0;
}

#endif
