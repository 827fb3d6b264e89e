/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The lab's hidden clock error: what a host of the lab reads at a true time. Pure: compiles for BPF and for the host.
 */
#ifndef CW_BPF_CLOCK_H
#define CW_BPF_CLOCK_H

#include "bpf/counters.h"

/* true_ns: bpf_ktime_get_ns(), CLOCK_MONOTONIC. The last segment that has begun holds; before the first one the clock
 * is right. A rate of 1e6 ppb may run for two hours per segment before the product overflows. */
CW_INLINE __u64 cw_lab_clock_at(const struct cw_lab_clock* c, __u64 true_ns) {
  __u32 at = 0;
  __u64 start;
  __s64 drift;
  __u64 drifted;
  /* Without branches: old verifiers would follow each of 64 ways. */
  CW_UNROLL(8)
  for (__u32 step = CW_LAB_SEGMENTS / 2; step; step >>= 1) {
    __u32 next = (at + step) & (CW_LAB_SEGMENTS - 1);
    __s64 begun = ~((__s64)(true_ns - c->start_ns[next]) >> 63);
    __s64 used = ((__s64)next - (__s64)c->segments) >> 63;
    at += (__u32)(step & begun & used);
    CW_OPAQUE(at);
  }
  at &= CW_LAB_SEGMENTS - 1;
  start = c->start_ns[at];
  drift = c->drift_ppb[at];
  if (!c->segments || start > true_ns) return true_ns;
  /* BPF divides without sign. */
  drifted = (true_ns - start) * (__u64)(drift < 0 ? -drift : drift) / 1000000000u;
  return true_ns + (__u64)c->base_ns[at] + (drift < 0 ? 0 - drifted : drifted);
}

#endif
