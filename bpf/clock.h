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
  /* Without branches, and hidden from clang, which would make some: old verifiers would follow each of 64 ways. */
  CW_UNROLL(8)
  for (__u32 step = CW_LAB_SEGMENTS / 2; step; step >>= 1) {
    __u32 next = (at + step) & (CW_LAB_SEGMENTS - 1);
    __s64 begun = ~((__s64)(true_ns - c->start_ns[next]) >> 63);
    __s64 used = ((__s64)next - (__s64)c->segments) >> 63;
    CW_OPAQUE(begun);
    CW_OPAQUE(used);
    at += (__u32)(step & begun & used);
    CW_OPAQUE(at);
  }
  at &= CW_LAB_SEGMENTS - 1;
  __u64 since = true_ns - c->start_ns[at];
  __s64 holds = ~(((__s64)since | ((__s64)c->segments - 1)) >> 63);
  __s64 slow = c->drift_ppb[at] >> 63; /* all ones for a negative rate: BPF divides without sign */
  CW_OPAQUE(holds);
  CW_OPAQUE(slow);
  __u64 drifted = since * (__u64)((c->drift_ppb[at] ^ slow) - slow) / 1000000000u;
  return true_ns + (((__u64)c->base_ns[at] + ((drifted ^ (__u64)slow) - (__u64)slow)) & (__u64)holds);
}

#endif
