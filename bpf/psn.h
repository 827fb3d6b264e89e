/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Packet sequence numbers: serial arithmetic, trackers, the choice of samples, and what a packet does to the record of
 * its flow. Pure: compiles for BPF and for the host.
 * Source: InfiniBand Architecture Specification vol. 1 release 1.4, 9.7 (reliable service) and 9.8 (unreliable). */
#ifndef CW_BPF_PSN_H
#define CW_BPF_PSN_H

#include "bpf/parse.h"

#define CW_PSN_MASK 0xffffffu
/* The largest message, 2 GiB, has 2^19 packets of 4 KiB. PSNs further apart are not loss or retransmission: the queue
 * pair was made anew under the same number. */
#define CW_PSN_RESTART (1 << 20)
#define CW_MTU_MIN 256

/* a - b on the circle of 2^24, in [-2^23, 2^23). */
CW_INLINE __s32 cw_psn_diff(__u32 a, __u32 b) { return (__s32)((a - b) << 8) >> 8; }

/* Scrambles a PSN so that the trailing zeros of any run of PSNs are spread evenly. Two rounds of multiply and xor-shift
 * with odd constants; the sum keeps PSN 0 from having 32 zeros. */
CW_INLINE __u32 cw_psn_mix(__u32 psn) {
  __u32 x = (psn & CW_PSN_MASK) + 0x68bc21ebu;
  x = (x ^ (x >> 16)) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  return x ^ (x >> 13);
}

/* Sampled at a level is sampled at every lower one: ends at different levels still share the coarser set. */
CW_INLINE int cw_psn_sampled(__u32 psn, __u32 level) { return level < 32 && !(cw_psn_mix(psn) & ((1u << level) - 1)); }

/* Takes count PSNs from psn on. seen_after: what to put into seen. Returns 1 if psn has passed before. */
CW_INLINE int cw_psn_take(struct cw_psn_tracker* t, __u32 psn, __u32 count, __u32 seen_after) {
  t->packets++;
  if (t->seen) {
    __s32 ahead = cw_psn_diff(psn, t->next);
    if (ahead < 0 && ahead > -CW_PSN_RESTART) {
      t->duplicates++;
      return 1;
    }
    if (ahead > 0 && ahead < CW_PSN_RESTART && t->seen == 1) {
      t->gaps++;
      t->missing += ahead;
    }
  }
  t->next = (psn + count) & CW_PSN_MASK;
  t->seen = seen_after;
  return 0;
}

/* A READ request takes the PSNs of its answer: exact if the path MTU is known or the answer surely is one packet. */
CW_INLINE int cw_psn_read_request(struct cw_flow* f, const struct cw_packet* p) {
  __u32 count = 1;
  __u32 seen = 1;
  if (p->dma_len > CW_MTU_MIN) {
    if (f->mtu)
      count = (__u32)(((__u64)p->dma_len + f->mtu - 1) / f->mtu);
    else
      seen = 2;
  }
  return cw_psn_take(&f->req, p->psn, count, seen);
}

/* The receiver asks for all packets from the PSN on once more: it misses one, or was not ready. */
CW_INLINE int cw_asks_again(const struct cw_packet* p) { return p->syndrome == 0x60 || p->syndrome >> 5 == 1; }

CW_INLINE void cw_flow_aeth(struct cw_flow* f, const struct cw_packet* p) {
  __u32 kind = p->syndrome >> 5;
  if (kind == 0) {
    if (p->op & CW_OP_ACK) f->acks++;
  } else if (kind == 1) {
    f->rnr++;
  } else if (p->syndrome == 0x60) {
    f->nak_seq++;
  } else if (kind == 3) {
    f->nak_other++;
  }
}

/* Counts one packet and moves its tracker. Returns 1 if its PSN has passed before. An acknowledgement moves none: it
 * shares the response sequence without taking numbers of it. Between two answers PSNs of other requests may lie, so
 * behind an answer next is only a lower limit. */
CW_INLINE int cw_flow_update(struct cw_flow* f, const struct cw_packet* p, __u64 jiffies) {
  f->packets++;
  f->bytes += p->ip_len;
  f->last_seen_jiffies = jiffies;
  f->sport = p->sport;
  f->tos = p->tos;
  f->transport = p->opcode >> 5;
  if ((p->tos & 3) == 3) f->ce++;
  if ((p->op & CW_OP_FULL) && f->mtu != p->payload) f->mtu = p->payload;
  if (p->op & CW_OP_REQ) {
    if (p->op & CW_OP_READ) return cw_psn_read_request(f, p);
    return cw_psn_take(&f->req, p->psn, 1, 1);
  }
  if (p->op & CW_OP_AETH) cw_flow_aeth(f, p);
  if (p->op & CW_OP_RESP) return cw_psn_take(&f->resp, p->psn, 1, p->op & CW_OP_FINAL ? 2 : 1);
  if (p->op & CW_OP_CNP) f->cnp++;
  return 0;
}

/* The PSN up to which (exclusive) this packet acknowledges, or -1: the peer refused it, or it says nothing of that. */
CW_INLINE __s32 cw_acked_psn(const struct cw_packet* p) {
  if (!(p->op & CW_OP_AETH) || p->opcode >> 5 != CW_TRANSPORT_RC) return -1;
  if (p->syndrome >> 5 == 0) return (p->psn + 1) & CW_PSN_MASK;
  if (cw_asks_again(p)) return p->psn; /* what precedes the refused PSN arrived */
  return -1;
}

/* Whether this packet shows that the acknowledgements seen belong to an earlier life of the queue pair: a requester
 * neither sends again what was acknowledged nor leaves numbers out. Asked before cw_flow_update. */
CW_INLINE int cw_acked_is_old(const struct cw_tx_flow* f, const struct cw_packet* p) {
  if (!(p->op & CW_OP_REQ)) return 0;
  if (cw_psn_diff(p->psn, f->acked_psn) < 0) return 1;
  return f->flow.req.seen == 1 && cw_psn_diff(p->psn, f->flow.req.next) > 0;
}

/* What the packet's answers go by: the two addresses the other way round. */
CW_INLINE void cw_flow_key_back(struct cw_flow_key* key, const struct cw_packet* p, __u32 dqpn) {
  cw_address_copy(key->saddr, p->key.daddr);
  cw_address_copy(key->daddr, p->key.saddr);
  key->dqpn = dqpn;
}

/* The pair of a packet that arrives. That of one that leaves is how its flow's key begins: cw_pair_key_out(). */
CW_INLINE void cw_pair_key_in(struct cw_pair_key* key, const struct cw_packet* p) {
  cw_address_copy(key->local, p->key.daddr);
  cw_address_copy(key->remote, p->key.saddr);
}

CW_ASSERT_OFFSET(struct cw_flow_key, daddr, 16);
CW_ASSERT_OFFSET(struct cw_pair_key, remote, 16);
CW_INLINE const struct cw_pair_key* cw_pair_key_out(const struct cw_packet* p) {
  return (const struct cw_pair_key*)&p->key;
}

CW_INLINE int cw_pair_is(const struct cw_pair* pair, const __u8* local, const __u8* remote) {
  return cw_address_same(pair->key.local, local) && cw_address_same(pair->key.remote, remote);
}

#endif
