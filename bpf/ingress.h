/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Ingress of RoCE data: records of received flows, samples, and what acknowledgements prove. BPF only. */
#ifndef CW_BPF_INGRESS_H
#define CW_BPF_INGRESS_H

#include "bpf/blind.h"
#include "bpf/dataplane.h"
#include "bpf/steer.h"

/* Data acknowledged: the slot that carried the marked PSN was alive in the round of the mark. */
static __always_inline void cw_resolve_mark(struct cw_tx_flow* f, __u32 acked) {
  struct cw_pair* pair;
  struct cw_slot* slot;
  __u32 round = f->mark_round;
  __u32 s = f->mark_slot;
  if (!round || cw_psn_diff(acked, f->mark_psn) <= 0) return;
  f->mark_round = 0;
  pair = cw_get_pair(f->pair);
  if (!pair || s >= CW_MAX_SLOTS || pair->cur_round - round > CW_MARK_MAX_AGE) return;
  slot = cw_get_slot(pair, s);
  slot->acked_round = cw_round_max(slot->acked_round, round);
  slot->acked_ns = cw_now();
}

/* An acknowledgement for our own data, which went the other way under the peer's QPN. */
static __noinline int cw_acknowledged(const struct cw_packet* p, __u32 peer_qpn, __u32 acked) {
  struct cw_flow_key key;
  struct cw_tx_flow* f;
  __u64 now;
  cw_flow_key_back(&key, p, peer_qpn);
  f = bpf_map_lookup_elem(&cw_tx_flows, &key);
  if (!f || !f->flow.req.seen) return 0;
  now = bpf_jiffies64();
  cw_heard(f, now, acked);
  if (cw_asks_again(p)) f->nak_jiffies = now;
  if (f->acked_valid && cw_psn_diff(acked, f->acked_psn) <= 0) return 0;
  if (cw_psn_diff(acked, f->flow.req.next) > 0) return 0; /* never sent: of an earlier life of the queue pair */
  f->acked_psn = acked;
  f->acked_valid = 1;
  f->blind_moves = 0;
  cw_resolve_mark(f, acked);
  return 0;
}

static __noinline int cw_ingress_data(const struct cw_packet* p) {
  struct cw_flow* f;
  struct cw_ctl* ctl;
  __s32 acked;
  int duplicate;
  f = bpf_map_lookup_elem(&cw_flows, &p->key);
  if (!f) f = cw_make_flow(&p->key);
  if (!f) return 0;
  duplicate = cw_flow_update(f, p, bpf_jiffies64());
  if (!(p->op & CW_OP_KNOWN)) cw_count(CW_COUNT_opcode_unknown);
  if (p->op & CW_OP_AETH && f->peer_qpn) {
    acked = cw_acked_psn(p);
    if (acked >= 0) cw_acknowledged(p, f->peer_qpn, acked);
  }
  if (duplicate && (p->op & CW_OP_REQ) && f->peer_qpn) cw_sent_again(p, f->peer_qpn, f->req.next);
  if (!(p->op & (CW_OP_REQ | CW_OP_RESP))) return 0;
  ctl = cw_get_ctl();
  if (ctl && cw_psn_sampled(p->psn, ctl->sample_level_rx))
    cw_emit_sample(p, duplicate | CW_SAMPLE_SLOT(CW_SLOT_NONE) | CW_SAMPLE_PAIR(CW_PAIR_NONE), p->sport);
  return 0;
}

#endif
