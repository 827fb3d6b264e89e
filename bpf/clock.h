/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The lab's hidden clock error: what a host of the lab reads at a true time. Pure: compiles for BPF and for the host.
 */
#ifndef CW_BPF_CLOCK_H
#define CW_BPF_CLOCK_H

#include "bpf/counters.h"

/* true_ns: bpf_ktime_get_ns(), CLOCK_MONOTONIC. The last segment that has begun holds; before the first one the clock
 * is right. A rate of 1e6 ppb may run for two hours per segment before the product overflows. */
CW_INLINE __u64 cw_lab_clock_at(const struct cw_lab_clock* c, __u64 true_ns) {
  __u32 segments = c->segments;
  __u64 start = 0;
  __s64 drift = 0;
  __s64 base = 0;
  __u64 drifted;
  for (__u32 i = 0; i < CW_LAB_SEGMENTS; ++i) {
    if (i >= segments || c->start_ns[i] > true_ns) break;
    start = c->start_ns[i];
    drift = c->drift_ppb[i];
    base = c->base_ns[i];
  }
  /* BPF divides without sign. */
  drifted = (true_ns - start) * (__u64)(drift < 0 ? -drift : drift) / 1000000000u;
  return true_ns + (__u64)base + (drift < 0 ? 0 - drifted : drifted);
}

#endif
