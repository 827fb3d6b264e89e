/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Time that soft interrupts take from one process: they run in whatever task they meet and count as its time. In the
 * lab a send carries its packet over every hop of the fabric in that way; on real hosts these are other machines. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

const volatile __u32 target_tgid = 0;
__u64 stolen_ns = 0;

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} begun SEC(".maps");

static __always_inline __u64* begun_here(void) {
  __u32 zero = 0;
  if (bpf_get_current_pid_tgid() >> 32 != target_tgid) return 0;
  return bpf_map_lookup_elem(&begun, &zero);
}

SEC("raw_tp/softirq_entry")
int softirq_entry(void* ctx) {
  __u64* at = begun_here();
  if (at) *at = bpf_ktime_get_ns();
  return 0;
}

SEC("raw_tp/softirq_exit")
int softirq_exit(void* ctx) {
  __u64* at = begun_here();
  if (!at || !*at) return 0;
  __sync_fetch_and_add(&stolen_ns, bpf_ktime_get_ns() - *at);
  *at = 0;
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
