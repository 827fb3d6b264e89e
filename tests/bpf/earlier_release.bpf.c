/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Stands for an earlier release with the same maps and other programs: the loader must exchange these and keep those.
 * Each program counts what it sees in a counter that the real ones leave alone on such packets. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "bpf/icrc.h"
#include "maps/local_clock.h"
#include "maps/nic_line.h"

#define ARRAY(name_, type_, entries_, flags_) \
  struct {                                    \
    __uint(type, BPF_MAP_TYPE_ARRAY);         \
    __uint(max_entries, entries_);            \
    __uint(map_flags, flags_);                \
    __type(key, __u32);                       \
    __type(value, type_);                     \
  } name_ SEC(".maps")
#define HASH(name_, kind_, key_, value_, entries_) \
  struct {                                         \
    __uint(type, kind_);                           \
    __uint(max_entries, entries_);                 \
    __type(key, key_);                             \
    __type(value, value_);                         \
  } name_ SEC(".maps")
#define RING(name_, bytes_)             \
  struct {                              \
    __uint(type, BPF_MAP_TYPE_RINGBUF); \
    __uint(max_entries, bytes_);        \
  } name_ SEC(".maps")

ARRAY(cw_ctl, struct cw_ctl, 1, BPF_F_MMAPABLE);
ARRAY(cw_pairs, struct cw_pair, 16, BPF_F_MMAPABLE);
ARRAY(cw_probe_tx, struct cw_probe_tx, 16, 0);
ARRAY(cw_keys, struct cw_pair_keys, 16, 0);
ARRAY(cw_local_clock, struct cw_local_clock, 1, BPF_F_MMAPABLE);
ARRAY(cw_carry_out, struct cw_carry_out, 16, 0);
HASH(cw_carry_in, BPF_MAP_TYPE_HASH, struct cw_carry_key, struct cw_carry_in, 16);
HASH(cw_flows, BPF_MAP_TYPE_LRU_HASH, struct cw_flow_key, struct cw_flow, 1024);
HASH(cw_tx_flows, BPF_MAP_TYPE_HASH, struct cw_flow_key, struct cw_tx_flow, 1024);
HASH(cw_pair_index, BPF_MAP_TYPE_HASH, struct cw_pair_key, __u32, 32);
HASH(cw_nic_lines, BPF_MAP_TYPE_HASH, __u32, struct cw_nic_line, 64);
HASH(cw_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct cw_counters, 1);
RING(cw_probe_ring, 1 << 20);
RING(cw_event_ring, 1 << 18);
RING(cw_msg_ring, 1 << 20);

const volatile __u32 cw_icrc_pow[CW_ICRC_POWS] = {0}; /* what the loader sets in every release */

SEC("xdp.frags")
int cw_xdp_ingress(struct xdp_md* ctx) {
  __u32 zero = 0;
  struct cw_counters* counters = bpf_map_lookup_elem(&cw_counters, &zero);
  struct cw_ctl* ctl = bpf_map_lookup_elem(&cw_ctl, &zero);
  if (counters && ctl && ctl->mode != CW_MODE_OFF) counters->trace_arrived++;
  return XDP_PASS;
}

SEC("tc")
int cw_tc_egress(struct __sk_buff* skb) {
  __u32 zero = 0;
  struct cw_counters* counters = bpf_map_lookup_elem(&cw_counters, &zero);
  if (counters) counters->probe_sent++;
  return TC_ACT_OK;
}

SEC("tc")
int cw_tc_ingress(struct __sk_buff* skb) {
  __u32 zero = 0;
  struct cw_counters* counters = bpf_map_lookup_elem(&cw_counters, &zero);
  if (counters) counters->nic_unknown++;
  return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
