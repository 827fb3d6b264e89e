/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Probes at ingress: authentication, the peer's requests turned round, replies to our own, messages. BPF only.
 * Wire format: maps/wire.h. Nothing changes before the MAC is verified; no answer is longer than its question. */
#ifndef CW_BPF_PROBE_H
#define CW_BPF_PROBE_H

#include "bpf/dataplane.h"
#include "bpf/judge.h"
#include "bpf/nic_stamp.h"
#include "maps/siphash.h"

#define CW_PROBE_WORDS (CW_PROBE_HDR_LEN / 8)
#define CW_MAC_WORD (CW_PROBE_MAC_OFFSET / 8)
#define CW_REPLY_TTL 64
#define CW_UNANSWERED_ROUNDS 8

/* A probe that arrived. hdr is a copy: changes go back with cw_probe_store(). */
struct cw_probe {
  union {
    __u64 words[CW_PROBE_WORDS];
    struct cw_probe_hdr hdr;
  };
  __u64 now;    /* arrival, local clock */
  __u32 pair;   /* index */
  __u32 age_ns; /* the NIC's device saw it so long before, 0 = not known */
};

/* Arrival as the NIC stamped it, local clock; 0 = it did not. */
static __always_inline __u64 cw_nic_arrival(const struct cw_probe* pr) {
  if (cw_nic_stamps_on) return cw_nic_stamp_get();
  return pr->age_ns ? pr->now - pr->age_ns : 0;
}

/* The headers of a probe in the frame, their bounds checked. */
struct cw_probe_frame {
  struct cw_eth_hdr* eth;
  __u8* ip;
  struct cw_udp_hdr* udp;
  __u64* words;
};

static __always_inline int cw_probe_frame(struct xdp_md* ctx, const struct cw_packet* p, struct cw_probe_frame* f) {
  __u8* data = (__u8*)(long)ctx->data;
  __u8* end = (__u8*)(long)ctx->data_end;
  __u8* ip = data + (p->l3_off & CW_L3_OFF_MASK);
  __u8* udp = data + (p->l4_off & CW_L4_OFF_MASK);
  if (data + sizeof(struct cw_eth_hdr) > end || ip + CW_IP6_LEN > end) return 0; /* a probe over IPv4 is longer, too */
  if (udp + CW_UDP_LEN + CW_BTH_LEN + CW_PROBE_HDR_LEN > end) return 0;
  f->eth = (struct cw_eth_hdr*)data;
  f->ip = ip;
  f->udp = (struct cw_udp_hdr*)udp;
  f->words = (__u64*)(udp + CW_UDP_LEN + CW_BTH_LEN);
  return 1;
}

static __always_inline int cw_is_probe(const struct cw_packet* p) {
  return p->opcode == CW_BTH_OPCODE &&
         (p->key.dqpn == CW_BTH_QPN || p->key.dqpn >> CW_TEST_QPN_SHIFT == CW_TEST_QPN_TOP);
}

/* Magic, version, type, length; and the QPN, which only traces may choose. */
static __always_inline int cw_probe_well_formed(const struct cw_packet* p, const struct cw_probe_hdr* h) {
  if (h->magic != cw_be32(CW_PROBE_MAGIC) || h->version != CW_PROBE_VERSION || h->slot >= CW_MAX_SLOTS) return 0;
  if (p->key.dqpn != CW_BTH_QPN && h->type != CW_PROBE_TRACE) return 0;
  if (h->type == CW_PROBE_REQUEST || h->type == CW_PROBE_REPLY || h->type == CW_PROBE_TRACE)
    return p->udp_len == CW_PROBE_UDP_LEN;
  if (h->type == CW_PROBE_MESSAGE)
    return cw_be64(h->t1) <= CW_MSG_MAX && p->udp_len >= CW_PROBE_UDP_LEN + CW_MSG_MAC_LEN + (__u32)cw_be64(h->t1);
  return 0;
}

static __noinline __u64 cw_probe_mac(const __u64* key, const __u64* words) {
  return cw_siphash24(key, words, CW_MAC_WORD);
}

/* Sum of the IPv4 header with a zero checksum field, folded and inverted (RFC 1071). */
static __always_inline __u16 cw_ip4_checksum(const struct cw_ip4_hdr* ip) {
  const __u16* w = (const __u16*)ip;
  __u32 sum = w[0] + w[1] + w[2] + w[3] + w[4] + w[6] + w[7] + w[8] + w[9];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

/* The slot whose port a reply takes: they rotate, so that one dead way back does not silence one forward path. While
 * none of our own requests is answered, dead slots take their turn: one may be whole again, and all live ones cut
 * meanwhile without a witness. If replies took these alone, neither end would ever learn it. */
static __always_inline __u32 cw_reply_slot(const struct cw_pair* pair, __u32 slot, __u32 round, __u64 now) {
  __u32 live = pair->live_mask & 0xffff;
  __u32 last = pair->cur_round - 1;
  __u32 n;
  if (live && now - pair->last_reply_ns > (__u64)CW_UNANSWERED_ROUNDS * pair->interval_ns)
    live |= cw_round_mask_of(&pair->sent[last & (CW_ROUNDS - 1)], last) & 0xffff;
  n = cw_popcount16(live);
  return n ? cw_kth_bit(live, (slot + round) % n) : CW_SLOT_NONE;
}

/* enum cw_probe_flags of a request. */
static __always_inline __u8 cw_arrived_how(__u8 tos) {
  __u8 ecn = tos & 3;
  return (ecn == 3 ? CW_PROBE_CE : 0) | (ecn ? CW_PROBE_ECT : 0);
}

static __always_inline void cw_reply_fill(struct cw_probe* pr, const struct cw_pair* pair, __u32 rslot, __u32 key_id) {
  struct cw_ctl* ctl = cw_get_ctl();
  __u32 round = cw_be32(pr->hdr.round);
  pr->hdr.type = CW_PROBE_REPLY;
  pr->hdr.rslot = rslot;
  pr->hdr.key_id = key_id;
  pr->hdr.responder_session = ctl ? cw_be32(ctl->session) : 0;
  pr->hdr.t2 = cw_be64(pr->now);
  pr->hdr.t2_nic = cw_be64(cw_nic_arrival(pr));
  CW_UNROLL(8)
  for (__u32 i = 0; i < CW_ROUNDS; ++i)
    pr->hdr.bitmap[i] = cw_be16(cw_round_mask_of(&pair->rcvd[(round - i) & (CW_ROUNDS - 1)], round - i));
  pr->hdr.t3 = cw_be64(cw_now());
}

static __always_inline void cw_turn_ip4(struct cw_ip4_hdr* ip) {
  __be32 addr = ip->saddr;
  ip->saddr = ip->daddr;
  ip->daddr = addr;
  ip->id = 0;
  ip->ttl = CW_REPLY_TTL;
  if ((ip->tos & 3) == 3) ip->tos ^= 1; /* CE was the way here; the way back starts as ECT(0) */
  ip->check = cw_ip4_checksum(ip);
}

static __always_inline void cw_turn_ip6(struct cw_ip6_hdr* ip, __u16 sport) {
  __u32 first = cw_be32(ip->version_class_label);
  CW_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    __be32 word = ip->saddr[i];
    ip->saddr[i] = ip->daddr[i];
    ip->daddr[i] = word;
  }
  ip->hop_limit = CW_REPLY_TTL;
  if ((first >> 20 & 3) == 3) first ^= 1 << 20;
  if (sport) first = (first & ~CW_IP6_LABEL_MASK) | sport; /* as cw_relabel() does */
  ip->version_class_label = cw_be32(first);
}

/* Turns the frame round: addresses, ports, TTL, checksums and the header. The UDP checksum is 0 over IPv6, too, as it
 * is in RoCE (RFC 6935 and 6936: what is checked by other means may do without). */
static __always_inline void cw_reply_store(struct cw_probe_frame* f, const struct cw_packet* p,
                                           const struct cw_probe* pr, __u16 sport) {
  __u8 mac[6];
  __builtin_memcpy(mac, f->eth->src, 6);
  __builtin_memcpy(f->eth->src, f->eth->dst, 6);
  __builtin_memcpy(f->eth->dst, mac, 6);
  if (cw_is_ip6(p))
    cw_turn_ip6((struct cw_ip6_hdr*)f->ip, sport);
  else
    cw_turn_ip4((struct cw_ip4_hdr*)f->ip);
  if (sport) f->udp->sport = cw_be16(sport);
  f->udp->check = 0;
  CW_UNROLL(10)
  for (__u32 i = 0; i < CW_PROBE_WORDS; ++i) f->words[i] = pr->words[i];
}

static __noinline int cw_on_request(struct xdp_md* ctx, const struct cw_packet* p, struct cw_probe* pr) {
  struct cw_pair* pair = cw_get_pair(pr->pair);
  struct cw_pair_keys* keys = bpf_map_lookup_elem(&cw_keys, &pr->pair);
  struct cw_probe_frame f;
  __u32 round = cw_be32(pr->hdr.round);
  __u32 rslot, key_id;
  enum cw_admission admission;
  if (!pair || !keys) return XDP_DROP;
  admission = cw_rounds_admit(pair, cw_be32(pr->hdr.session), round, pr->hdr.slot);
  if (admission == CW_REPLAYED) {
    cw_count(CW_COUNT_probe_replayed);
    return XDP_DROP;
  }
  if (admission == CW_ADMITTED_RESTART) cw_count(CW_COUNT_peer_restarts);
  if (pair->peer_round == round) pair->peer_slots = cw_be16(pr->hdr.bitmap[0]);
  key_id = keys->tx_id & 1;
  if (!(keys->valid >> key_id & 1) || !cw_probe_frame(ctx, p, &f)) return XDP_DROP;
  rslot = cw_reply_slot(pair, pr->hdr.slot, round, pr->now);
  cw_reply_fill(pr, pair, rslot, key_id);
  pr->hdr.flags = cw_arrived_how(p->tos);
  pr->words[CW_MAC_WORD] = cw_probe_mac(keys->tx[key_id], pr->words);
  cw_reply_store(&f, p, pr, rslot == CW_SLOT_NONE ? 0 : cw_get_slot(pair, rslot)->port);
  cw_count(CW_COUNT_probe_requests);
  return XDP_TX;
}

/* Takes back the T1 of an outstanding request; 0 if there is none. Each is answered once. */
static __always_inline __u64 cw_take_t1(__u32 pair, __u32 slot, __u32 round) {
  struct cw_probe_tx* tx = bpf_map_lookup_elem(&cw_probe_tx, &pair);
  __u32 at = round & (CW_TX_ROUNDS - 1);
  slot &= CW_MAX_SLOTS - 1;
  if (!tx || tx->round[slot][at] != round) return 0;
  return __sync_lock_test_and_set(&tx->t1[slot][at], 0);
}

static __noinline int cw_emit_probe(const struct cw_probe* pr, __u64 t1) {
  struct cw_ev_probe* ev = bpf_ringbuf_reserve(&cw_probe_ring, sizeof(*ev), 0);
  if (!ev) return cw_count(CW_COUNT_probe_ring_full);
  ev->type = CW_EV_PROBE;
  ev->pair = pr->pair;
  ev->slot = pr->hdr.slot;
  ev->rslot = pr->hdr.rslot;
  ev->round = cw_be32(pr->hdr.round);
  ev->responder_session = cw_be32(pr->hdr.responder_session);
  ev->t1 = t1;
  ev->t2 = cw_be64(pr->hdr.t2);
  ev->t3 = cw_be64(pr->hdr.t3);
  ev->t4 = pr->now;
  ev->t2_nic = cw_be64(pr->hdr.t2_nic);
  ev->t4_nic = cw_nic_arrival(pr);
  CW_UNROLL(8)
  for (__u32 i = 0; i < CW_ROUNDS; ++i) ev->arrived[i] = cw_be16(pr->hdr.bitmap[i]);
  ev->flags = pr->hdr.flags;
  __builtin_memset(ev->reserved, 0, sizeof(ev->reserved));
  bpf_ringbuf_submit(ev, BPF_RB_NO_WAKEUP);
  return 0;
}

static __noinline int cw_on_reply(struct cw_probe* pr) {
  struct cw_pair* pair = cw_get_pair(pr->pair);
  struct cw_ctl* ctl = cw_get_ctl();
  __u32 responder = cw_be32(pr->hdr.responder_session);
  __u32 round = cw_be32(pr->hdr.round);
  struct cw_reply reply;
  __u64 t1;
  if (!pair || !ctl) return XDP_DROP;
  if (cw_be32(pr->hdr.session) != ctl->session) {
    cw_count(CW_COUNT_probe_bad_session);
    return XDP_DROP;
  }
  t1 = cw_take_t1(pr->pair, pr->hdr.slot, round);
  if (!t1) {
    cw_count(CW_COUNT_probe_stale);
    return XDP_DROP;
  }
  if (responder != pair->responder_session) {
    /* Another life of the peer remembers nothing of earlier rounds. */
    pair->responder_session = responder;
    pair->floor_round = round;
  }
  pair->last_reply_ns = pr->now;
  cw_count(CW_COUNT_probe_replies);
  cw_emit_probe(pr, t1);

  cw_slot_raw(cw_get_slot(pair, pr->hdr.slot), cw_be64(pr->hdr.t2) - t1);
  reply.pair = pr->pair;
  reply.round = round;
  reply.witness = pr->hdr.slot;
  reply.miss_limit = ctl->miss_limit;
  reply.revive_limit = ctl->revive_limit;
  reply.patience_ns = ctl->patience_ns;
  reply.t2 = cw_be64(pr->hdr.t2);
  reply.now = pr->now;
  CW_NO_UNROLL
  for (__u32 i = 0; i < CW_ROUNDS; ++i) {
    reply.rcvd[i] = cw_be16(pr->hdr.bitmap[i]);
    reply.sent[i] = cw_round_mask_of(&pair->sent[(round - i) & (CW_ROUNDS - 1)], round - i);
  }
  reply.rcvd[0] |= 1u << pr->hdr.slot; /* the bitmap may have gone on */
  cw_judge(&reply, pair);
  return XDP_DROP;
}

static __noinline int cw_on_message(struct xdp_md* ctx, const struct cw_packet* p, const struct cw_probe* pr) {
  __u32 len = CW_PROBE_HDR_LEN + (__u32)cw_be64(pr->hdr.t1) + CW_MSG_MAC_LEN; /* what pads it stays here */
  struct cw_ev_msg* ev;
  /* Well-formed messages keep these bounds already; the verifier needs them said here. */
  CW_OPAQUE(len);
  if (len > sizeof(ev->packet)) return XDP_DROP;
  CW_OPAQUE(len);
  if (len < CW_PROBE_HDR_LEN) return XDP_DROP;
  ev = bpf_ringbuf_reserve(&cw_msg_ring, sizeof(*ev), 0);
  if (!ev) {
    cw_count(CW_COUNT_message_ring_full);
    return XDP_DROP;
  }
  ev->type = CW_EV_MSG;
  ev->pair = pr->pair;
  ev->len = len;
  ev->ns = pr->now;
  if (bpf_xdp_load_bytes(ctx, (p->l4_off & CW_L4_OFF_MASK) + CW_UDP_LEN + CW_BTH_LEN, ev->packet, len)) {
    bpf_ringbuf_discard(ev, 0);
    return XDP_DROP;
  }
  bpf_ringbuf_submit(ev, 0);
  cw_count(CW_COUNT_messages);
  return XDP_DROP;
}

/* The pair that a probe belongs to: a reply names it, whatever else arrives is found by its addresses. */
static __always_inline __u32 cw_probe_pair(const struct cw_packet* p, const struct cw_probe_hdr* h) {
  struct cw_pair_key key __attribute__((aligned(8)));
  struct cw_pair* pair;
  if (h->type != CW_PROBE_REPLY) {
    cw_pair_key_in(&key, p);
    return cw_find_pair(&key);
  }
  pair = cw_get_pair(cw_be16(h->cookie));
  return pair && cw_pair_is(pair, p->key.daddr, p->key.saddr) ? cw_be16(h->cookie) : CW_PAIR_NONE;
}

/* What would be refused with a right MAC, too, is refused without computing it. Returns the counter, CW_COUNT_END for
 * none. Reads only; who acts on the probe looks again. */
static __always_inline __u32 cw_probe_known(const struct cw_probe_hdr* h, const struct cw_pair* pair, __u32 index) {
  __u32 slot = h->slot & (CW_MAX_SLOTS - 1), round = cw_be32(h->round);
  __u32 at = round & (CW_TX_ROUNDS - 1);
  struct cw_probe_tx* tx;
  struct cw_ctl* ctl;
  if (h->type == CW_PROBE_REQUEST)
    return cw_rounds_known(pair, cw_be32(h->session), round, slot) ? CW_COUNT_probe_replayed : CW_COUNT_END;
  if (h->type != CW_PROBE_REPLY) return CW_COUNT_END;
  ctl = cw_get_ctl();
  if (ctl && cw_be32(h->session) != ctl->session) return CW_COUNT_probe_bad_session;
  tx = bpf_map_lookup_elem(&cw_probe_tx, &index);
  return tx && tx->round[slot][at] == round && tx->t1[slot][at] ? CW_COUNT_END : CW_COUNT_probe_stale;
}

enum cw_screened { CW_REFUSED = 0, CW_NOT_OURS = 1 };

/* Is a packet with our opcode and QPN a probe that we believe? Returns when it arrived (CLOCK_MONOTONIC) and sets
 * p->pair, or says why not, counted. A flood of what is refused has to cost little: what is cheap to ask comes first,
 * then the clock, the MAC last, and nothing is called that need not be. */
static __noinline __u64 cw_probe_screen(struct xdp_md* ctx, struct cw_packet* p) {
  __u32 why = CW_COUNT_probe_malformed, id;
  const struct cw_probe_hdr* h;
  struct cw_pair_keys* keys;
  struct cw_probe_frame f;
  struct cw_pair* pair;
  __u64 now;
  if (!cw_probe_frame(ctx, p, &f)) goto refused;
  h = __builtin_assume_aligned(f.words, 8);
  if (!cw_probe_well_formed(p, h)) goto refused;
  why = CW_COUNT_probe_unknown_peer;
  p->pair = cw_probe_pair(p, h);
  pair = cw_get_pair(p->pair);
  keys = bpf_map_lookup_elem(&cw_keys, &p->pair);
  if (p->pair == CW_PAIR_NONE || !pair || !keys) goto refused;
  why = CW_COUNT_probe_bad_mac;
  id = h->key_id;
  if (id > 1 || !(keys->valid >> id & 1)) goto refused;
  why = cw_probe_known(h, pair, p->pair);
  if (why != CW_COUNT_END) goto refused;
  if (cw_nic_stamps_on) cw_nic_stamp_take(ctx);
  now = bpf_ktime_get_ns();
  why = CW_COUNT_probe_bad_mac;
  if (cw_siphash24(keys->rx[id], f.words, CW_MAC_WORD) == f.words[CW_MAC_WORD]) return now;
refused:
  cw_count_here(why);
  return why == CW_COUNT_probe_malformed ? CW_NOT_OURS : CW_REFUSED;
}

/* A probe that was let in, which arrived at `arrived` (CLOCK_MONOTONIC). */
static __noinline int cw_on_probe(struct xdp_md* ctx, const struct cw_packet* p, __u64 arrived) {
  struct cw_probe pr;
  struct cw_probe_frame f;
  pr.now = cw_with_lab_error(arrived, cw_local_time(arrived));
  pr.age_ns = 0;
  if (cw_nic_stamps_on)
    cw_nic_stamp_convert(ctx, pr.now);
  else
    pr.age_ns = cw_shown_age(ctx, arrived, pr.now);
  if (!cw_probe_frame(ctx, p, &f)) return XDP_DROP;
  CW_UNROLL(10)
  for (__u32 i = 0; i < CW_PROBE_WORDS; ++i) pr.words[i] = f.words[i];
  pr.pair = p->pair;
  if (pr.hdr.type == CW_PROBE_REQUEST) return cw_on_request(ctx, p, &pr);
  if (pr.hdr.type == CW_PROBE_REPLY) return cw_on_reply(&pr);
  if (pr.hdr.type == CW_PROBE_MESSAGE) return cw_on_message(ctx, p, &pr);
  cw_count(CW_COUNT_trace_arrived);
  return XDP_DROP;
}

/* DETH and magic of a probe that came or goes as a UD SEND. */
struct cw_ud_head {
  __be32 qkey;
  __be32 qpn; /* the sender's */
  __be32 magic;
};

static __always_inline int cw_is_ud(const struct cw_packet* p) { return p->opcode == CW_UD_OPCODE; }

/* To nobody's queue pair, with our key and magic: the agent reads it (userspace/probe_verbs/packet_endpoint.h). Neither
 * IP nor soft-RoCE would know whose it is. */
static __always_inline int cw_ingress_ud_probe(struct xdp_md* ctx, const struct cw_packet* p) {
  __u8* data = (__u8*)(long)ctx->data;
  __u8* end = (__u8*)(long)ctx->data_end;
  __u8* type = data + ((p->l3_off - 2) & CW_L3_OFF_MASK);
  __u8* head = data + (p->l4_off & CW_L4_OFF_MASK) + CW_UDP_LEN + CW_BTH_LEN;
  const struct cw_ud_head* h = (const struct cw_ud_head*)head;
  if (p->key.dqpn != CW_BTH_QPN || type + 2 > end || head + sizeof(*h) > end) return 0;
  if (h->qkey != cw_be32(CW_UD_QKEY) || h->magic != cw_be32(CW_PROBE_MAGIC)) return 0;
  *(__be16*)type = cw_be16(CW_ETH_UD_PROBE);
  return 1;
}

/* What has our magic is nobody else's and ends here; what has not passes. */
static __always_inline int cw_ingress_probe(struct xdp_md* ctx, struct cw_packet* p) {
  __u64 arrived = cw_probe_screen(ctx, p);
  if (arrived == CW_REFUSED) return XDP_DROP;
  if (arrived == CW_NOT_OURS) return XDP_PASS;
  return cw_on_probe(ctx, p, arrived);
}

#endif
