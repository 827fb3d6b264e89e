/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What the product's refusal of bad probes is measured against: programs that only drop them. Nothing that looks at
 * packets at all can cost less. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bpf/parse.h"
#include "tests/bench/flood_mark.h"

__u64 dropped = 0; /* a veth has one receive queue here, so nobody else writes */

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} bench_product SEC(".maps");

/* bench-flood: frames that carry the flood's mark are dropped, all others are the product's. */
SEC("xdp.frags")
int bench_flood_gate(struct xdp_md* ctx) {
  struct cw_eth_hdr* eth = (struct cw_eth_hdr*)(long)ctx->data;
  if ((void*)(eth + 1) > (void*)(long)ctx->data_end) return XDP_PASS;
  if (eth->src[0] == FLOOD_MARK_0 && eth->src[1] == FLOOD_MARK_1) {
    dropped++;
    return XDP_DROP;
  }
  bpf_tail_call(ctx, &bench_product, 0);
  return XDP_PASS;
}

/* bench-dataplane: whatever has our probes' opcode is dropped. */

SEC("xdp.frags")
int bench_flood_drop(struct xdp_md* ctx) {
  __u8 *data = (__u8*)(long)ctx->data, *end = (__u8*)(long)ctx->data_end;
  struct cw_eth_hdr* eth = (struct cw_eth_hdr*)data;
  struct cw_ip4_hdr* ip = (struct cw_ip4_hdr*)(eth + 1);
  struct cw_udp_hdr* udp = (struct cw_udp_hdr*)(ip + 1);
  struct cw_bth_hdr* bth = (struct cw_bth_hdr*)(udp + 1);
  if ((__u8*)(bth + 1) > end) return XDP_PASS;
  if (eth->type != cw_be16(0x0800) || ip->version_ihl != 0x45 || ip->protocol != 17) return XDP_PASS;
  if (udp->dport != cw_be16(CW_ROCE_PORT) || bth->opcode != CW_BTH_OPCODE) return XDP_PASS;
  dropped++;
  return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
