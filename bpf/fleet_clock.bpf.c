/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The map of fleet time (maps/clock_abi.h), for the agent to create: from here it gets its types (BTF), so that
 * `bpftool map dump pinned .../cw_fleet_clock` shows the fields by name. No programs. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps/clock_abi.h"

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_fleet_clock);
} cw_fleet_clock SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";
