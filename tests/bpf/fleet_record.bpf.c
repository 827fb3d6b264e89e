// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
// Reads fleet time as any BPF program of the host may: maps/clock_abi.h, the map mapped by userspace.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps/clock_abi.h"

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct cw_fleet_clock);
} fleet_clock SEC(".maps");

int result;
__s64 fleet_ns;
__s64 tai_ns;
__u64 bound_ns;
__u64 local_ns;

SEC("xdp")
int fleet_time(struct xdp_md* ctx) {
  const __u32 zero = 0;
  const struct cw_fleet_clock* clock = bpf_map_lookup_elem(&fleet_clock, &zero);
  __s64 fleet = 0;
  __u64 bound = 0;
  (void)ctx;
  if (!clock) return XDP_ABORTED;
  local_ns = bpf_ktime_get_ns();
  result = cw_fleet_at(clock, local_ns, &fleet, &bound);
  fleet_ns = fleet;
  bound_ns = bound;
  return XDP_PASS;
}

SEC("xdp")
int tai_time(struct xdp_md* ctx) {
  const __u32 zero = 0;
  const struct cw_fleet_clock* clock = bpf_map_lookup_elem(&fleet_clock, &zero);
  __s64 tai = 0;
  __u64 bound = 0;
  (void)ctx;
  if (!clock) return XDP_ABORTED;
  local_ns = bpf_ktime_get_ns();
  result = cw_fleet_tai_at(clock, local_ns, &tai, &bound);
  tai_ns = tai;
  bound_ns = bound;
  return XDP_PASS;
}

SEC("xdp")
int local_time(struct xdp_md* ctx) {
  (void)ctx;
  local_ns = bpf_ktime_get_ns();
  return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
