/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* BPF_PROG_TEST_RUN hands the packet of one run, as changed, to the next run. Where the program under test changes it,
 * one of these restores it and tail-calls the program. The same with a program that does nothing gives what the
 * restoring costs, which the benchmark subtracts. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "tests/bench/restore.h"

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} xdp_target SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} tc_target SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, BENCH_REQUESTS);
  __type(key, __u32);
  __type(value, struct bench_request);
} requests SEC(".maps");

__u32 next_request = 0;
__u16 native_port = 0; /* big-endian */

SEC("xdp.frags")
int bench_noop_xdp(struct xdp_md* ctx) { return XDP_PASS; }

SEC("tc")
int bench_noop_tc(struct __sk_buff* skb) { return TC_ACT_UNSPEC; }

/* The next request of the table: each has a round of its own, because a round is answered once. */
SEC("xdp.frags")
int bench_restore_request(struct xdp_md* ctx) {
  __u32 index = next_request++ % BENCH_REQUESTS;
  struct bench_request* request = bpf_map_lookup_elem(&requests, &index);
  if (!request || bpf_xdp_store_bytes(ctx, 0, request->frame, BENCH_REQUEST_LEN)) return XDP_ABORTED;
  bpf_tail_call(ctx, &xdp_target, 0);
  return XDP_ABORTED;
}

SEC("tc")
int bench_restore_port(struct __sk_buff* skb) {
  __u16 port = native_port;
  if (bpf_skb_store_bytes(skb, BENCH_SPORT_OFFSET, &port, sizeof(port), 0)) return TC_ACT_SHOT;
  bpf_tail_call(skb, &tc_target, 0);
  return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
