/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* cw_jiffies_now: the kernel's 64-bit jiffies beside its monotonic time, for the agent: leases and ages in the maps are
 * in jiffies, which no system call tells. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct cw_jiffies {
  __u64 jiffies;
  __u64 ns;
};

SEC("syscall")
int cw_jiffies_now(struct cw_jiffies* out) {
  out->ns = bpf_ktime_get_ns();
  out->jiffies = bpf_jiffies64();
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
