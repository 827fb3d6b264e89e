/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* From an Ethernet frame to the fields of its RoCEv2 packet. Pure: compiles for BPF and for the host, no helper calls.
 *
 * Source: IEEE 802.1Q (two tags), RFC 791, RFC 768, InfiniBand Architecture Specification vol. 1 release 1.4,
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
  __be32 version_class_label;
  __be16 payload_len;
  __u8 next_header;
  __u8 hop_limit;
  __u8 addresses[32];
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

CW_ASSERT_SIZE(struct cw_eth_hdr, 14);
CW_ASSERT_SIZE(struct cw_ip4_hdr, 20);
CW_ASSERT_SIZE(struct cw_ip6_hdr, 40);
CW_ASSERT_SIZE(struct cw_udp_hdr, 8);
CW_ASSERT_SIZE(struct cw_bth_hdr, CW_BTH_LEN);
CW_ASSERT_SIZE(struct cw_reth_hdr, 16);

#define CW_IP4_LEN 20
#define CW_UDP_LEN 8

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

/* Lengths and offsets in bytes; integers in host order except the two addresses. */
struct cw_packet {
  __be32 saddr;
  __be32 daddr;
  __u32 l3_off; /* of the IPv4 header in the frame; the UDP header follows CW_IP4_LEN behind it */
  __u32 dqpn;
  __u32 psn;
  __u32 op;      /* enum cw_op */
  __u32 dma_len; /* READ request: bytes asked for */
  __u16 sport;
  __u16 ip_len;
  __u16 udp_len;
  __u16 udp_check; /* as on the wire, 0 = none */
  __u16 payload;   /* behind the extended headers, without pad */
  __u8 tos;
  __u8 opcode;
  __u8 syndrome; /* of the AETH, where op has CW_OP_AETH */
};

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

CW_INLINE int cw_is_vlan(__be16 type) { return type == cw_be16(CW_ETH_VLAN) || type == cw_be16(CW_ETH_QINQ); }

/* Leaves the cursor at *l3_off, behind at most two tags, and *type at the type behind them. The offset is counted, not
 * computed from the cursor: the verifier knows no bounds of a difference of pointers. */
CW_INLINE int cw_parse_eth(struct cw_cursor* c, __be16* type, __u32* l3_off) {
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

/* Neither IPv4 nor anything that is handled: only say whether it would have been RoCE. */
CW_INLINE int cw_parse_not_ip4(struct cw_cursor* c, __be16 type) {
  const struct cw_ip6_hdr* ip6;
  const struct cw_udp_hdr* udp;
  if (type == cw_be16(CW_ETH_ROCEV1)) return CW_COUNT_rocev1_frames;
  if (type != cw_be16(CW_ETH_IP6)) return CW_PARSE_OTHER;
  ip6 = CW_TAKE(c, struct cw_ip6_hdr);
  if (!ip6 || ip6->next_header != CW_PROTO_UDP) return CW_PARSE_OTHER;
  udp = CW_TAKE(c, struct cw_udp_hdr);
  if (udp && udp->dport == cw_be16(CW_ROCE_PORT)) return CW_COUNT_ipv6_roce;
  return CW_PARSE_OTHER;
}

CW_INLINE int cw_parse_udp(const void* data, const void* end, struct cw_packet* p) {
  struct cw_cursor c = {(const __u8*)data, (const __u8*)end};
  const struct cw_ip4_hdr* ip;
  const struct cw_udp_hdr* udp;
  __u32 options;
  __be16 type = 0;
  int r = cw_parse_eth(&c, &type, &p->l3_off);
  if (r != CW_PARSE_ROCE) return r;
  if (type != cw_be16(CW_ETH_IP4)) return cw_parse_not_ip4(&c, type);

  ip = CW_TAKE(&c, struct cw_ip4_hdr);
  if (!ip) return CW_COUNT_ip_truncated;
  options = ip->version_ihl - 0x45u;
  CW_OPAQUE(options); /* or 6.1's verifier loses the bound */
  if (options > 0x4f - 0x45) return CW_COUNT_ip_truncated;
  if (ip->protocol != CW_PROTO_UDP) return CW_PARSE_OTHER;
  if (ip->frag & cw_be16(0x3fff)) return CW_COUNT_ip_fragment;
  options *= 4;
  if (options && !cw_take(&c, options)) return CW_COUNT_ip_truncated;
  udp = CW_TAKE(&c, struct cw_udp_hdr);
  if (!udp) return CW_COUNT_udp_truncated;
  if (udp->dport != cw_be16(CW_ROCE_PORT)) return CW_PARSE_OTHER;
  if (options) return CW_COUNT_ip_options;

  p->saddr = ip->saddr;
  p->daddr = ip->daddr;
  p->tos = ip->tos;
  p->ip_len = cw_be16(ip->len);
  p->sport = cw_be16(udp->sport);
  p->udp_len = cw_be16(udp->len);
  p->udp_check = udp->check;
  return CW_PARSE_ROCE;
}

/* data and end as before (or reloaded); frame_len: bytes of the whole frame, also those beyond end. */
CW_INLINE int cw_parse_roce(const void* data, const void* end, __u32 frame_len, struct cw_packet* p) {
  struct cw_cursor c = {(const __u8*)data + p->l3_off + CW_IP4_LEN + CW_UDP_LEN, (const __u8*)end};
  const struct cw_bth_hdr* bth;
  const struct cw_reth_hdr* reth;
  const __u8* aeth;
  __u32 fixed;
  if (p->l3_off + p->ip_len > frame_len) return CW_COUNT_ip_truncated;
  if (p->udp_len + CW_IP4_LEN != p->ip_len) return CW_COUNT_udp_length_bad;
  if (p->udp_len < CW_UDP_LEN + CW_BTH_LEN + CW_ICRC_LEN) return CW_COUNT_bth_truncated;
  bth = CW_TAKE(&c, struct cw_bth_hdr);
  if (!bth) return CW_COUNT_bth_truncated;
  if (bth->flags & 0x0f) return CW_COUNT_bth_version;
  p->opcode = bth->opcode;
  p->dqpn = cw_be32(bth->qpn) & 0xffffff;
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
