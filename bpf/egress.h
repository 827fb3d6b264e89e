/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Egress of RoCE data: records of sent flows, then bpf/steer.h; and T1 of our own probes. BPF only. */
#ifndef CW_BPF_EGRESS_H
#define CW_BPF_EGRESS_H

#include "bpf/blind.h"
#include "bpf/carry.h"
#include "bpf/probe.h"
#include "bpf/steer.h"

struct cw_own_probe {
  union {
    __u64 words[CW_PROBE_WORDS];
    struct cw_probe_hdr hdr;
  };
};

/* Records that a request leaves, if it is the agent's: any process may send bytes that look like one. */
static __noinline int cw_request_leaves(const struct cw_packet* p, const struct cw_own_probe* pr) {
  const struct cw_probe_hdr* h = &pr->hdr;
  __u32 index = cw_be16(h->cookie), id = h->key_id;
  struct cw_pair* pair = cw_get_pair(index);
  struct cw_pair_keys* keys = bpf_map_lookup_elem(&cw_keys, &index);
  struct cw_probe_tx* tx = bpf_map_lookup_elem(&cw_probe_tx, &index);
  if (!pair || !keys || !tx || !cw_pair_is(pair, p->key.saddr, p->key.daddr))
    return cw_count(CW_COUNT_probe_unknown_peer);
  if (id > 1) return cw_count(CW_COUNT_probe_bad_mac);
  CW_OPAQUE(id); /* 6.1 forgets its bound where it is kept on the stack */
  id &= 1;
  if (!(keys->valid >> id & 1) || cw_probe_mac(keys->tx[id], pr->words) != pr->words[CW_MAC_WORD])
    return cw_count(CW_COUNT_probe_bad_mac);
  cw_rounds_leave(pair, tx, cw_be32(h->session), cw_be32(h->round), h->slot, cw_now(), bpf_jiffies64());
  return cw_count(CW_COUNT_probe_sent);
}

static __always_inline void cw_egress_probe(struct __sk_buff* skb, const struct cw_packet* p) {
  struct cw_own_probe pr;
  __u32 off = p->l4_off + CW_UDP_LEN + CW_BTH_LEN;
  if (bpf_skb_load_bytes(skb, off, &pr, sizeof(pr)) || !cw_probe_well_formed(p, &pr.hdr)) {
    cw_count(CW_COUNT_probe_malformed);
    return;
  }
  if (pr.hdr.type == CW_PROBE_REQUEST) cw_request_leaves(p, &pr);
  bpf_set_hash_invalid(skb);
}

/* The agent's own, of which the program was told before (userspace/probe_verbs/verbs_transport.h). */
static __always_inline int cw_egress_ud_probe(struct __sk_buff* skb, const struct cw_packet* p) {
  struct cw_ud_head h;
  if (bpf_skb_load_bytes(skb, p->l4_off + CW_UDP_LEN + CW_BTH_LEN, &h, sizeof(h))) return 0;
  return h.qkey == cw_be32(CW_UD_QKEY) && h.qpn == cw_be32(CW_BTH_QPN) && h.magic == cw_be32(CW_PROBE_MAGIC);
}

static const struct cw_tx_flow cw_new_tx_flow = {
    .pair = CW_PAIR_NONE,
    .slot = CW_SLOT_NONE,
    .native_slot = CW_SLOT_NONE,
    .want_slot = CW_SLOT_NONE,
};

/* The slot that probes just this port, if there is one. */
static __always_inline __u32 cw_native_slot(const struct cw_pair* pair, __u16 port) {
  CW_NO_UNROLL
  for (__u32 s = 0; s < CW_MAX_SLOTS; ++s)
    if (pair->slot[s].port == port && pair->slot[s].state != CW_SLOT_UNUSED) return s;
  return CW_SLOT_NONE;
}

static __always_inline void cw_keep_label(struct cw_tx_flow* f, const struct cw_packet* p) {
  f->label[0] = p->label >> 16;
  f->label[1] = p->label >> 8;
  f->label[2] = p->label;
}

/* A flow to an address that is no peer, or for which there was no room: counted, never steered. */
static __noinline int cw_egress_unknown(const struct cw_egress* e, const struct cw_packet* p, __u32 counter) {
  struct cw_flow* f = bpf_map_lookup_elem(&cw_flows, &p->key);
  if (!f) {
    f = cw_make_flow(&p->key);
    if (!f) return 0;
    cw_count(counter);
  }
  cw_flow_update(f, p, e->jiffies);
  return 0;
}

/* Places a flow that is sent for the first time: on a slot if it is new and that is wanted, else on its native port. */
static __always_inline void cw_place(struct cw_egress* e, struct cw_tx_flow* f, const struct cw_packet* p) {
  struct cw_pair* pair = e->pair;
  struct cw_ev_move what = {.type = CW_EV_FLOW, .pair = f->pair, .from_port = p->sport, .psn = p->psn};
  __u32 native = cw_native_slot(pair, p->sport);
  __u32 slot = CW_SLOT_NONE;
  f->native_slot = native;
  if (native == CW_SLOT_NONE) f->flags = CW_STEER_NATIVE_NEW;
  if ((e->may & (CW_ACTS(CW_CAP_PLACE) | CW_DECIDES(CW_CAP_PLACE))) && e->ctl->assign_jiffies &&
      e->jiffies >= e->ctl->assign_jiffies) {
    __u32 mask = pair->live_mask & pair->assign_mask & (e->lease_over - 1);
    slot = p->op & CW_OP_REQ || p->payload ? cw_next_slot(e->ctl, pair, mask) : cw_slot_for_answers(p->key.dqpn, mask);
  }
  what.from_slot = native;
  what.to_slot = native;
  f->slot = native;
  if (slot != CW_SLOT_NONE) {
    what.to_slot = slot;
    what.to_port = cw_get_slot(pair, slot)->port;
    what.reason = CW_MOVE_ASSIGN;
    what.dry = !(e->may & CW_ACTS(CW_CAP_PLACE));
  }
  if (slot != CW_SLOT_NONE && !what.dry) {
    f->slot = slot;
    f->port = what.to_port;
    f->reason = CW_MOVE_ASSIGN;
    f->move_psn = p->psn;
    f->moved_jiffies = e->jiffies;
    cw_count(CW_COUNT_flows_assigned);
  }
  cw_emit_move(e->key, &what);
}

/* Makes the record of a sent flow. 0: none, and the packet is done with. */
static __noinline struct cw_tx_flow* cw_make_tx_flow(struct cw_egress* e, const struct cw_packet* p) {
  __u32 index = cw_find_pair(cw_pair_key_out(p));
  struct cw_tx_flow* f;
  e->pair = cw_get_pair(index);
  if (index == CW_PAIR_NONE || !e->pair) {
    cw_egress_unknown(e, p, CW_COUNT_peer_unknown);
    return 0;
  }
  e->may = CW_LESS(e->may, e->pair->withheld);
  /* Once full, no attempt is made until the agent has made room and clears the flag. As int: up to 6.3 the kernel
   * leaves the upper half of the result unset. */
  if (!e->ctl->steer_full && (int)bpf_map_update_elem(&cw_tx_flows, &p->key, &cw_new_tx_flow, BPF_NOEXIST) == -E2BIG)
    e->ctl->steer_full = 1;
  f = bpf_map_lookup_elem(&cw_tx_flows, &p->key);
  if (!f) {
    cw_egress_unknown(e, p, CW_COUNT_steer_full);
    return 0;
  }
  if (f->pair == CW_PAIR_NONE) { /* not another CPU's */
    f->pair = index;
    f->flow.first_seen_jiffies = e->jiffies;
    f->acked_psn = p->psn;
    cw_keep_label(f, p);
    if (cw_is_datagram(p)) f->flow.peer_qpn = p->sender;
    cw_place(e, f, p);
  }
  return f;
}

static __always_inline __u32 cw_signs(const struct cw_egress* e, const struct cw_packet* p, int duplicate) {
  return (p->op & CW_OP_REQ && !e->nothing_in_flight ? CW_SIGN_REQUEST : 0) | (duplicate ? CW_SIGN_DUPLICATE : 0);
}

/* Decides about the packet's path; afterwards e->slot is the slot that it takes. */
static __always_inline void cw_steer(struct __sk_buff* skb, struct cw_egress* e, struct cw_tx_flow* f,
                                     const struct cw_packet* p, int duplicate) {
  e->slot = cw_acting(e) && f->port ? f->slot : f->native_slot;
  if (e->slot == CW_SLOT_NONE) {
    cw_count(CW_COUNT_native_unprobed);
  } else if (cw_get_slot(e->pair, e->slot)->state == CW_SLOT_DEAD) {
    if (!(f->flags & CW_STEER_HARD_LOCKED)) cw_leave_dead(e, f, p->psn);
    return;
  }
  if (cw_is_blind(skb, e) && cw_unheard(f, e->jiffies, cw_signs(e, p, duplicate), e->ctl->blind_jiffies)) {
    cw_leave_blind(e, f, p->psn);
    return;
  }
  if (cw_acting(e) && (f->want_slot != CW_SLOT_NONE || (e->lease_over && f->reason != CW_MOVE_BLIND)))
    cw_try_wish(e, f, p);
}

/* Returns the program's verdict. */
static __always_inline int cw_egress_data(struct __sk_buff* skb, const struct cw_packet* p) {
  struct cw_egress e;
  struct cw_tx_flow* f;
  __u16 port = 0;
  int duplicate;
  e.key = &p->key;
  e.ctl = cw_get_ctl();
  if (!e.ctl) return TC_ACT_UNSPEC;
  e.jiffies = bpf_jiffies64();
  e.may = e.ctl->mode;
  e.lease_over = cw_lease_over(e.ctl, e.jiffies);
  f = bpf_map_lookup_elem(&cw_tx_flows, &p->key);
  if (!f) f = cw_make_tx_flow(&e, p);
  if (!f) return TC_ACT_UNSPEC;
  e.pair = cw_get_pair(f->pair);
  if (!e.pair) return TC_ACT_UNSPEC;
  e.may = CW_LESS(e.may, e.pair->withheld | f->withheld);
  e.nothing_in_flight = f->acked_valid && f->acked_psn == f->flow.req.next;
  if (cw_acked_is_old(f, p)) f->acked_valid = 0;
  duplicate = cw_flow_update(&f->flow, p, e.jiffies);
  if (cw_asks_again(p)) {
    f->nak_jiffies = e.jiffies;
    f->unanswered = 0; /* a packet that is late looks as if it were sent again, just before the NAK that it caused */
  }
  if (cw_nic_failover_on && (e.pair->carried & (e.lease_over - 1)) && (e.may & CW_ACTS(CW_CAP_NIC))) {
    int verdict = cw_carry(skb, p, f->pair);
    if (verdict != TC_ACT_UNSPEC) return verdict;
  }
  if (e.nothing_in_flight && (p->op & CW_OP_REQ)) f->heard_jiffies = e.jiffies;
  cw_steer(skb, &e, f, p, duplicate);
  cw_mark(&e, f, p, duplicate);
  if (cw_acting(&e)) {
    port = f->port;
    if (port && port != p->sport && !cw_rewrite(skb, f, p, port)) port = 0;
    if (f->hold_ns) cw_hold(skb, f);
  }
  if ((p->op & (CW_OP_REQ | CW_OP_RESP)) && cw_psn_sampled(p->psn, e.ctl->sample_level_tx))
    cw_emit_sample(p, duplicate | CW_SAMPLE_TX | CW_SAMPLE_SLOT(e.slot) | CW_SAMPLE_PAIR(f->pair),
                   port ? port : p->sport);
  return TC_ACT_UNSPEC;
}

#endif
