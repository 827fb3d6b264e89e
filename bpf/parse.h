/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* From an Ethernet frame to the fields of its RoCEv2 packet. Pure: compiles for BPF and for the host, no helper calls.
 *
 * Source: IEEE 802.1Q (two tags), RFC 791, RFC 8200, RFC 768, InfiniBand Architecture Specification vol. 1 release 1.4,
 * chapter 9 (BTH and extended headers), annex A17 (RoCEv2).
 * Two steps, because whatever is not RoCEv2 shall leave after the first: cw_parse_udp() down to the UDP ports, then
 * cw_parse_roce(). Each returns CW_PARSE_ROCE to go on, CW_PARSE_OTHER for traffic that is none of our business, or the
 * counter (enum cw_counter) that names why the packet is not handled.
 * All reads are bounded by [data, end). In a fragmented or paged frame end may lie before frame_len. Any thread. */
#ifndef CW_BPF_PARSE_H
#define CW_BPF_PARSE_H

#include "bpf/counters.h"
#include "maps/wire.h"

enum { CW_PARSE_ROCE = -1, CW_PARSE_OTHER = -2 };

/* Headers are naturally aligned among themselves, but not in a host buffer. */
#ifdef __bpf__
#define CW_WIRE
#else
#define CW_WIRE __attribute__((packed))
#endif

struct cw_eth_hdr {
  __u8 dst[6];
  __u8 src[6];
  __be16 type;
} CW_WIRE;

struct cw_vlan_hdr {
  __be16 tci;
  __be16 type;
} CW_WIRE;

struct cw_ip4_hdr {
  __u8 version_ihl;
  __u8 tos;
  __be16 len;
  __be16 id;
  __be16 frag;
  __u8 ttl;
  __u8 protocol;
  __u16 check;
  __be32 saddr;
  __be32 daddr;
} CW_WIRE;

struct cw_ip6_hdr {
  __be32 version_class_label; /* 4, 8 and 20 bits */
  __be16 payload_len;
  __u8 next_header;
  __u8 hop_limit;
  __be32 saddr[4];
  __be32 daddr[4];
} CW_WIRE;

/* What hop-by-hop options, routing and destination options begin with. */
struct cw_ip6_ext_hdr {
  __u8 next_header;
  __u8 len; /* in units of 8 bytes, the first not counted */
  __u8 content[6];
} CW_WIRE;

struct cw_udp_hdr {
  __be16 sport;
  __be16 dport;
  __be16 len;
  __u16 check;
} CW_WIRE;

struct cw_bth_hdr {
  __u8 opcode;
  __u8 flags; /* solicited, migration, pad count (2 bits), version (4 bits) */
  __be16 pkey;
  __be32 qpn; /* top byte: FECN, BECN, reserved */
  __be32 psn; /* top byte: acknowledge request, reserved */
} CW_WIRE;

struct cw_reth_hdr {
  __be32 va[2];
  __be32 rkey;
  __be32 dma_len;
} CW_WIRE;

struct cw_deth_hdr {
  __be32 qkey;
  __be32 qpn; /* the sender's, in the low 24 bits */
} CW_WIRE;

CW_ASSERT_SIZE(struct cw_eth_hdr, 14);
CW_ASSERT_SIZE(struct cw_ip4_hdr, 20);
CW_ASSERT_SIZE(struct cw_ip6_hdr, 40);
CW_ASSERT_SIZE(struct cw_ip6_ext_hdr, 8);
CW_ASSERT_SIZE(struct cw_udp_hdr, 8);
CW_ASSERT_SIZE(struct cw_bth_hdr, CW_BTH_LEN);
CW_ASSERT_SIZE(struct cw_reth_hdr, 16);

#define CW_IP4_LEN 20
#define CW_IP6_LEN 40
#define CW_UDP_LEN 8
/* Offsets in the frame, as the verifier needs them said: at most 14 + 8 and 14 + 8 + 40. */
#define CW_L3_OFF_MASK 31
#define CW_L4_OFF_MASK 63

CW_INLINE __u16 cw_be16(__u16 x) { return __builtin_bswap16(x); }
CW_INLINE __u32 cw_be32(__u32 x) { return __builtin_bswap32(x); }
CW_INLINE __u64 cw_be64(__u64 x) { return __builtin_bswap64(x); }

/* What an opcode means to the trackers; the low bits are the length of its extended headers. */
enum cw_op {
  CW_OP_EXT = 0x3f,
  CW_OP_KNOWN = 0x40,
  CW_OP_REQ = 0x80,    /* takes PSNs of the request sequence */
  CW_OP_READ = 0x100,  /* READ request: takes as many PSNs as its answer has packets */
  CW_OP_RESP = 0x200,  /* carries data back, under the PSN of the request */
  CW_OP_START = 0x400, /* first packet of an answer */
  CW_OP_FINAL = 0x800, /* last packet of an answer */
  CW_OP_FULL = 0x1000, /* its payload is exactly one path MTU */
  CW_OP_AETH = 0x2000, /* acknowledges */
  CW_OP_ACK = 0x4000,  /* is an acknowledgement and nothing else */
  CW_OP_CNP = 0x8000,  /* congestion notification */
};

/* The operations of the RC transport, by the low five bits of the opcode. */
static const __u16 cw_rc_ops[32] = {
    /* SEND first, middle, last, last with immediate, only, only with immediate */
    CW_OP_KNOWN | CW_OP_REQ | CW_OP_FULL,
    CW_OP_KNOWN | CW_OP_REQ | CW_OP_FULL,
    CW_OP_KNOWN | CW_OP_REQ,
    CW_OP_KNOWN | CW_OP_REQ | 4,
    CW_OP_KNOWN | CW_OP_REQ,
    CW_OP_KNOWN | CW_OP_REQ | 4,
    /* RDMA WRITE, the same six */
    CW_OP_KNOWN | CW_OP_REQ | CW_OP_FULL | 16,
    CW_OP_KNOWN | CW_OP_REQ | CW_OP_FULL,
    CW_OP_KNOWN | CW_OP_REQ,
    CW_OP_KNOWN | CW_OP_REQ | 4,
    CW_OP_KNOWN | CW_OP_REQ | 16,
    CW_OP_KNOWN | CW_OP_REQ | 20,
    /* RDMA READ request, response first, middle, last, only */
    CW_OP_KNOWN | CW_OP_REQ | CW_OP_READ | 16,
    CW_OP_KNOWN | CW_OP_RESP | CW_OP_START | CW_OP_FULL | CW_OP_AETH | 4,
    CW_OP_KNOWN | CW_OP_RESP | CW_OP_FULL,
    CW_OP_KNOWN | CW_OP_RESP | CW_OP_FINAL | CW_OP_AETH | 4,
    CW_OP_KNOWN | CW_OP_RESP | CW_OP_START | CW_OP_FINAL | CW_OP_AETH | 4,
    /* acknowledge, atomic acknowledge, compare and swap, fetch and add */
    CW_OP_KNOWN | CW_OP_ACK | CW_OP_AETH | 4,
    CW_OP_KNOWN | CW_OP_RESP | CW_OP_START | CW_OP_FINAL | CW_OP_AETH | 12,
    CW_OP_KNOWN | CW_OP_REQ | 28,
    CW_OP_KNOWN | CW_OP_REQ | 28,
    0,
    /* SEND last and only with invalidate */
    CW_OP_KNOWN | CW_OP_REQ | 4,
    CW_OP_KNOWN | CW_OP_REQ | 4,
    0,
    0,
    0,
    0,
    /* FLUSH, atomic write */
    CW_OP_KNOWN | CW_OP_REQ | 20,
    CW_OP_KNOWN | CW_OP_REQ | 16,
    0,
    0,
};

enum { CW_TRANSPORT_RC = 0, CW_TRANSPORT_UC = 1, CW_TRANSPORT_UD = 3, CW_OPCODE_CNP = 0x81 };

CW_INLINE __u32 cw_opcode_info(__u8 opcode) {
  __u32 transport = opcode >> 5;
  __u32 op = opcode & 31;
  if (transport == CW_TRANSPORT_RC) return cw_rc_ops[op];
  if (transport == CW_TRANSPORT_UC) return op < 12 ? cw_rc_ops[op] : 0;
  if (opcode == CW_OPCODE_CNP) return CW_OP_KNOWN | CW_OP_CNP | 16;
  if (opcode == 0x64) return CW_OP_KNOWN | 8;  /* UD SEND only: DETH */
  if (opcode == 0x65) return CW_OP_KNOWN | 12; /* and immediate */
  return 0;
}

/* Lengths and offsets in bytes; integers in host order. Both families look alike from here on. */
struct cw_packet {
  struct cw_flow_key key;
  __u32 psn;
  __u32 op; /* enum cw_op */
  union {
    __u32 dma_len; /* READ request: bytes asked for */
    __u32 pair;    /* probe that was let in: its pair's index */
    __u32 sender;  /* UD: QPN of the sender, which its packets alone tell */
  };
  __u32 label; /* IPv6 flow label, 20 bits; 0 for IPv4 */
  __u16 sport;
  __u16 ip_len;
  __u16 udp_len;
  __u16 udp_check; /* as on the wire, 0 = none */
  __u16 payload;   /* behind the extended headers, without pad */
  __u8 tos;        /* IPv6: traffic class */
  __u8 opcode;
  __u8 syndrome; /* of the AETH, where op has CW_OP_AETH */
  __u8 l3_off;   /* of the IP header in the frame */
  __u8 l4_off;   /* of the UDP header */
};

CW_INLINE int cw_is_datagram(const struct cw_packet* p) { return p->opcode >> 5 == CW_TRANSPORT_UD; }

struct cw_cursor {
  const __u8* pos;
  const __u8* end;
};

CW_INLINE const void* cw_take(struct cw_cursor* c, __u32 len) {
  const __u8* p = c->pos;
  if (p + len > c->end) return 0;
  c->pos = p + len;
  return p;
}
#define CW_TAKE(cursor, type) ((const type*)cw_take(cursor, sizeof(type)))

#define CW_ETH_IP4 0x0800
#define CW_ETH_IP6 0x86DD
#define CW_ETH_ROCEV1 0x8915
#define CW_ETH_VLAN 0x8100
#define CW_ETH_QINQ 0x88A8
#define CW_PROTO_UDP 17
#define CW_IP6_HOP_BY_HOP 0
#define CW_IP6_ROUTING 43
#define CW_IP6_FRAGMENT 44
#define CW_IP6_DESTINATION 60
#define CW_IP6_LABEL_MASK 0xfffffu

CW_INLINE int cw_is_vlan(__be16 type) { return type == cw_be16(CW_ETH_VLAN) || type == cw_be16(CW_ETH_QINQ); }

/* Leaves the cursor at *l3_off, behind at most two tags, and *type at the type behind them. The offset is counted, not
 * computed from the cursor: the verifier knows no bounds of a difference of pointers. */
CW_INLINE int cw_parse_eth(struct cw_cursor* c, __be16* type, __u8* l3_off) {
  const struct cw_eth_hdr* eth = CW_TAKE(c, struct cw_eth_hdr);
  const struct cw_vlan_hdr* tag;
  if (!eth) return CW_COUNT_eth_truncated;
  *type = eth->type;
  *l3_off = sizeof(*eth);
  if (!cw_is_vlan(*type)) return CW_PARSE_ROCE;
  tag = CW_TAKE(c, struct cw_vlan_hdr);
  if (!tag) return CW_COUNT_eth_truncated;
  *type = tag->type;
  *l3_off = sizeof(*eth) + sizeof(*tag);
  if (!cw_is_vlan(*type)) return CW_PARSE_ROCE;
  tag = CW_TAKE(c, struct cw_vlan_hdr);
  if (!tag) return CW_COUNT_eth_truncated;
  *type = tag->type;
  *l3_off = sizeof(*eth) + 2 * sizeof(*tag);
  if (cw_is_vlan(*type)) return CW_COUNT_vlan_too_deep;
  return CW_PARSE_ROCE;
}

/* Addresses as in a GID: IPv4 is ::ffff:a.b.c.d. All of ours are aligned to 4 bytes. */
CW_INLINE void cw_address_v4(__u8* to, __be32 address) {
  cw_word32* w = (cw_word32*)to;
  __u64 zero = 0, x = address;
  CW_FORGET(zero, x);
  w[0] = w[1] = (__u32)zero;
  w[2] = (__u32)zero | cw_be32(0xffff);
  w[3] = address;
}

CW_INLINE void cw_address_copy(__u8* to, const __u8* from) {
  cw_word32* t = (cw_word32*)to;
  const cw_word32* f = (const cw_word32*)from;
  t[0] = f[0];
  t[1] = f[1];
  t[2] = f[2];
  t[3] = f[3];
}

CW_INLINE int cw_address_same(const __u8* a, const __u8* b) {
  const cw_word32 *x = (const cw_word32*)a, *y = (const cw_word32*)b;
  return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

CW_INLINE int cw_address_is_v4(const __u8* address) {
  const cw_word32* w = (const cw_word32*)address;
  return !(w[0] | w[1] | (w[2] ^ cw_be32(0xffff)));
}

CW_INLINE int cw_parse_udp_ports(struct cw_cursor* c, struct cw_packet* p) {
  const struct cw_udp_hdr* udp = CW_TAKE(c, struct cw_udp_hdr);
  if (!udp) return CW_COUNT_udp_truncated;
  if (udp->dport != cw_be16(CW_ROCE_PORT)) return CW_PARSE_OTHER;
  p->sport = cw_be16(udp->sport);
  p->udp_len = cw_be16(udp->len);
  p->udp_check = udp->check;
  return CW_PARSE_ROCE;
}

CW_INLINE int cw_parse_ip4(struct cw_cursor* c, struct cw_packet* p) {
  const struct cw_ip4_hdr* ip = CW_TAKE(c, struct cw_ip4_hdr);
  __u32 options;
  int r;
  if (!ip) return CW_COUNT_ip_truncated;
  options = ip->version_ihl - 0x45u;
  CW_OPAQUE(options); /* or 6.1's verifier loses the bound */
  if (options > 0x4f - 0x45) return CW_COUNT_ip_truncated;
  if (ip->protocol != CW_PROTO_UDP) return CW_PARSE_OTHER;
  if (ip->frag & cw_be16(0x3fff)) return CW_COUNT_ip_fragment;
  options *= 4;
  if (options && !cw_take(c, options)) return CW_COUNT_ip_truncated;
  r = cw_parse_udp_ports(c, p);
  if (r != CW_PARSE_ROCE) return r;
  if (options) return CW_COUNT_ip_options;
  cw_address_v4(p->key.saddr, ip->saddr);
  cw_address_v4(p->key.daddr, ip->daddr);
  p->tos = ip->tos;
  p->ip_len = cw_be16(ip->len);
  p->l4_off = (__u8)(p->l3_off + CW_IP4_LEN);
  p->label = 0;
  return CW_PARSE_ROCE;
}

/* Not UDP at once. One extension header is looked behind, to say whether this is RoCE that is not handled. */
CW_INLINE int cw_parse_ip6_ext(struct cw_cursor* c, __u8 next_header, struct cw_packet* p) {
  const struct cw_ip6_ext_hdr* ext;
  __u32 more;
  int r;
  if (next_header != CW_IP6_HOP_BY_HOP && next_header != CW_IP6_ROUTING && next_header != CW_IP6_FRAGMENT &&
      next_header != CW_IP6_DESTINATION)
    return CW_PARSE_OTHER;
  ext = CW_TAKE(c, struct cw_ip6_ext_hdr);
  if (!ext || ext->next_header != CW_PROTO_UDP) return CW_PARSE_OTHER;
  if (next_header == CW_IP6_FRAGMENT) return CW_COUNT_ip_fragment;
  more = ext->len * 8u;
  if (more && !cw_take(c, more)) return CW_PARSE_OTHER;
  r = cw_parse_udp_ports(c, p);
  return r == CW_PARSE_ROCE ? (int)CW_COUNT_ip6_extension : r;
}

CW_INLINE int cw_parse_ip6(struct cw_cursor* c, struct cw_packet* p) {
  const struct cw_ip6_hdr* ip = CW_TAKE(c, struct cw_ip6_hdr);
  __u32 first;
  int r;
  if (!ip) return CW_COUNT_ip_truncated;
  first = cw_be32(ip->version_class_label);
  if (first >> 28 != 6) return CW_COUNT_ip_truncated;
  if (ip->next_header != CW_PROTO_UDP) return cw_parse_ip6_ext(c, ip->next_header, p);
  r = cw_parse_udp_ports(c, p);
  if (r != CW_PARSE_ROCE) return r;
  __builtin_memcpy(p->key.saddr, ip->saddr, sizeof(ip->saddr));
  __builtin_memcpy(p->key.daddr, ip->daddr, sizeof(ip->daddr));
  p->tos = (__u8)(first >> 20);
  p->label = first & CW_IP6_LABEL_MASK;
  p->ip_len = (__u16)(cw_be16(ip->payload_len) + CW_IP6_LEN); /* what wraps disagrees with the UDP length */
  p->l4_off = (__u8)(p->l3_off + CW_IP6_LEN);
  return CW_PARSE_ROCE;
}

/* Tags and families, six ways in all, meet here: what is constant on one of them is forgotten. */
CW_INLINE void cw_forget_ways(struct cw_packet* p) {
  __u64 l3_off = p->l3_off, l4_off = p->l4_off, label = p->label, x = p->sport;
  CW_FORGET(l3_off, x);
  CW_FORGET(l4_off, x);
  CW_FORGET(label, x);
  p->l3_off = (__u8)l3_off;
  p->l4_off = (__u8)l4_off;
  p->label = (__u32)label;
}

CW_INLINE int cw_is_ip6(const struct cw_packet* p) { return p->l4_off != p->l3_off + CW_IP4_LEN; }

CW_INLINE int cw_parse_udp(const void* data, const void* end, struct cw_packet* p) {
  struct cw_cursor c = {(const __u8*)data, (const __u8*)end};
  __be16 type = 0;
  int r = cw_parse_eth(&c, &type, &p->l3_off);
  if (r != CW_PARSE_ROCE) return r;
  if (type == cw_be16(CW_ETH_IP4))
    r = cw_parse_ip4(&c, p);
  else if (type == cw_be16(CW_ETH_IP6))
    r = cw_parse_ip6(&c, p);
  else if (type == cw_be16(CW_ETH_ROCEV1))
    return CW_COUNT_rocev1_frames;
  else
    return CW_PARSE_OTHER;
  if (r == CW_PARSE_ROCE) cw_forget_ways(p);
  return r;
}

/* data and end as before (or reloaded); frame_len: bytes of the whole frame, also those beyond end. */
CW_INLINE int cw_parse_roce(const void* data, const void* end, __u32 frame_len, struct cw_packet* p) {
  struct cw_cursor c = {(const __u8*)data + (p->l4_off & CW_L4_OFF_MASK) + CW_UDP_LEN, (const __u8*)end};
  const struct cw_bth_hdr* bth;
  const struct cw_reth_hdr* reth;
  const struct cw_deth_hdr* deth;
  const __u8* aeth;
  __u32 fixed;
  if ((__u32)p->l3_off + p->ip_len > frame_len) return CW_COUNT_ip_truncated;
  if (p->udp_len + p->l4_off != p->ip_len + p->l3_off) return CW_COUNT_udp_length_bad;
  if (p->udp_len < CW_UDP_LEN + CW_BTH_LEN + CW_ICRC_LEN) return CW_COUNT_bth_truncated;
  bth = CW_TAKE(&c, struct cw_bth_hdr);
  if (!bth) return CW_COUNT_bth_truncated;
  if (bth->flags & 0x0f) return CW_COUNT_bth_version;
  p->opcode = bth->opcode;
  p->key.dqpn = cw_be32(bth->qpn) & 0xffffff;
  p->psn = cw_be32(bth->psn) & 0xffffff;
  p->op = cw_opcode_info(bth->opcode);
  fixed = CW_UDP_LEN + CW_BTH_LEN + (p->op & CW_OP_EXT) + ((bth->flags >> 4) & 3) + CW_ICRC_LEN;
  if (p->udp_len < fixed) return CW_COUNT_ext_truncated;
  p->payload = (__u16)(p->udp_len - fixed);
  p->dma_len = 0;
  p->syndrome = 0;
  if (p->op & CW_OP_READ) {
    reth = CW_TAKE(&c, struct cw_reth_hdr);
    if (!reth) return CW_COUNT_ext_truncated;
    p->dma_len = cw_be32(reth->dma_len);
  } else if (cw_is_datagram(p)) {
    deth = CW_TAKE(&c, struct cw_deth_hdr);
    if (deth) p->sender = cw_be32(deth->qpn) & 0xffffff;
  } else if (p->op & CW_OP_AETH) {
    aeth = (const __u8*)cw_take(&c, 4);
    if (!aeth) return CW_COUNT_ext_truncated;
    p->syndrome = aeth[0];
  }
  return CW_PARSE_ROCE;
}

/* Both steps on a whole frame in memory. */
CW_INLINE int cw_parse(const void* data, __u32 len, struct cw_packet* p) {
  const void* end = (const __u8*)data + len;
  int r = cw_parse_udp(data, end, p);
  return r == CW_PARSE_ROCE ? cw_parse_roce(data, end, len, p) : r;
}

#endif
