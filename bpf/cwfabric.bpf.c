/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* cwfabric's dataplane: one program where packets come in, one where they leave.
 * Whatever is not understood passes untouched and is counted once under the name that says why (maps/abi.h). Neither
 * program drops or changes a data packet, except for the source port of flows that are steered, with its ICRC. A third
 * one, and addresses that are changed on one side and put back on the other, belong to NIC failover (bpf/carry.h). */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "bpf/carry.h"
#include "bpf/egress.h"
#include "bpf/ingress.h"
#include "bpf/probe.h"

#ifdef CW_NIC_STAMPS
/* The program for one NIC is bound to it, and must never grow while it is loaded: Linux (seen on 6.12 and 6.18) then
 * moves it, and the NIC keeps the old address, which it follows when it is unregistered. The verifier replaces calls by
 * longer code, but drops dead code first: so this dead code is room to grow in. Never 1. Before all else: in the midst
 * of parsing, clang keeps values across it that it never set, and the verifier refuses the program. */
const volatile _Bool cw_room = 0;
#define CW_ROOM() \
  if (cw_room) asm volatile(".rept 2048\n r0 = 0\n .endr" : : : "r0")
#else
#define CW_ROOM()
#endif

/* frags: RoCE's MTU of 4096 makes frames larger than one buffer. Headers are in the first one. */
SEC("xdp.frags")
int cw_xdp_ingress(struct xdp_md* ctx) {
  void *data, *end;
  struct cw_packet p;
  __u32 frame_len;
  int r;
  CW_ROOM();
  data = (void*)(long)ctx->data;
  end = (void*)(long)ctx->data_end;
  r = cw_parse_udp(data, end, &p);
  if (r == CW_PARSE_OTHER) return XDP_PASS;
  if (r == CW_PARSE_ROCE) {
    data = (void*)(long)ctx->data; /* again, rather than kept: old verifiers count every word of all stacks */
    end = (void*)(long)ctx->data_end;
    frame_len = end - data;
    if (p.l3_off + p.ip_len > frame_len) frame_len = bpf_xdp_get_buff_len(ctx);
    r = cw_parse_roce(data, end, frame_len, &p);
  }
  if (r >= 0) {
    cw_count(r);
    return XDP_PASS;
  }
  if (cw_is_probe(&p)) return cw_ingress_probe(ctx, &p);
  if (cw_is_ud(&p) && cw_ingress_ud_probe(ctx, &p)) return XDP_PASS;
  cw_ingress_data(&p);
  return XDP_PASS;
}

/* Headers up to a READ request's or an acknowledgement's. */
#define CW_HEADERS_MAX (14 + 8 + CW_IP6_LEN + CW_UDP_LEN + CW_BTH_LEN + 28)

/* Paged packets may have nothing but Ethernet, IP and UDP in their linear part. */
static __always_inline int cw_tc_parse(struct __sk_buff* skb, struct cw_packet* p) {
  void* data = (void*)(long)skb->data;
  void* end = (void*)(long)skb->data_end;
  __u32 len = skb->len;
  int r = cw_parse_udp(data, end, p);
  if (r != CW_PARSE_ROCE) return r;
  if (skb->gso_size) return CW_COUNT_gso_frames;
  if (data + CW_HEADERS_MAX > end && (__u32)(end - data) < len) {
    bpf_skb_pull_data(skb, len < CW_HEADERS_MAX ? len : CW_HEADERS_MAX);
    data = (void*)(long)skb->data;
    end = (void*)(long)skb->data_end;
  }
  return cw_parse_roce(data, end, len, p);
}

SEC("tc")
int cw_tc_egress(struct __sk_buff* skb) {
  struct cw_packet p;
  int r = cw_tc_parse(skb, &p);
  if (r == CW_PARSE_OTHER) return TC_ACT_UNSPEC;
  if (r >= 0)
    cw_count(r);
  else if (cw_is_probe(&p))
    cw_egress_probe(skb, &p);
  else if (cw_is_ud(&p) && cw_egress_ud_probe(skb, &p))
    bpf_set_hash_invalid(skb);
  else
    return cw_egress_data(skb, &p);
  return TC_ACT_UNSPEC;
}

/* NIC failover, receiving: attached only where it is on. Packets were counted by XDP, so nothing is counted here. */
SEC("tc")
int cw_tc_ingress(struct __sk_buff* skb) {
  struct cw_packet p;
  if (cw_tc_parse(skb, &p) != CW_PARSE_ROCE || !(p.key.dqpn >> CW_CARRY_TAG_SHIFT)) return TC_ACT_UNSPEC;
  return cw_carry_restore(skb, &p);
}

char _license[] SEC("license") = "Dual BSD/GPL";
