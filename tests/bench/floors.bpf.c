/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What the kernel alone asks for a sample and for a rewritten packet: programs that do nothing else. Whatever a program
 * that samples or rewrites costs beyond them is its own. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "maps/abi.h"
#include "maps/wire.h"
#include "tests/bench/restore.h"

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} floor_ring SEC(".maps");

/* The time, and a record as long as a sample's. */
SEC("xdp.frags")
int bench_floor_sample(struct xdp_md* ctx) {
  struct cw_ev_sample* ev = bpf_ringbuf_reserve(&floor_ring, sizeof(*ev), 0);
  if (!ev) return XDP_ABORTED;
  ev->ns = bpf_ktime_get_ns();
  bpf_ringbuf_submit(ev, BPF_RB_NO_WAKEUP);
  return XDP_PASS;
}

/* The source port and the ICRC. */
SEC("tc")
int bench_floor_rewrite(struct __sk_buff* skb) {
  __u16 port = 0;
  __u32 icrc = 0;
  if (bpf_skb_store_bytes(skb, skb->len - CW_ICRC_LEN, &icrc, sizeof(icrc), 0)) return TC_ACT_SHOT;
  if (bpf_skb_store_bytes(skb, BENCH_SPORT_OFFSET, &port, sizeof(port), BPF_F_INVALIDATE_HASH)) return TC_ACT_SHOT;
  return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
