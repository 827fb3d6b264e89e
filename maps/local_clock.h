/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Local time: CLOCK_MONOTONIC (bpf_ktime_get_ns()) plus a line that makes it run like CLOCK_MONOTONIC_RAW, so that what
 * an NTP client does to the former is no drift of this host's clock. One record in an array map (cw_local_clock:
 * ARRAY[1], mmapable); written by the agent alone, read by every program that takes the time, and by the agent itself.
 *
 *   local at t = t + ahead_ns + rate · (t - pivot_ns) + work · (t - pivot_ns, in 0 .. work_ns)
 *
 * All zero is CLOCK_MONOTONIC itself. Lines follow each other without a step: each begins, at its pivot, where the one
 * before had come to. `work` makes good what was missed before a change of the slew was noticed, and ends by itself.
 * Two copies, as in clock_abi.h: copy[generation & 1] holds.
 * Units: nanoseconds, rates in 2^-32. Both compilers: BPF divides without sign, hence the fixed point. */
#ifndef CW_MAPS_LOCAL_CLOCK_H
#define CW_MAPS_LOCAL_CLOCK_H

#include <linux/types.h>

struct cw_local_line {
  __u64 pivot_ns; /* CLOCK_MONOTONIC */
  __s64 ahead_ns; /* local - CLOCK_MONOTONIC at the pivot */
  __s64 rate_q32; /* rate of CLOCK_MONOTONIC_RAW over CLOCK_MONOTONIC's, minus 1 */
  __s64 work_q32; /* for work_ns after the pivot; |work_q32| · work_ns stays below 2^62 */
  __s64 work_ns;
  __u64 reserved[3];
};

struct cw_local_clock {
  __u64 generation;
  __u64 reserved[7];
  struct cw_local_line copy[2];
};

#ifdef __cplusplus
static_assert(sizeof(struct cw_local_line) == 64, "ABI size");
static_assert(sizeof(struct cw_local_clock) == 192, "ABI size");
#else
_Static_assert(sizeof(struct cw_local_line) == 64, "ABI size");
_Static_assert(sizeof(struct cw_local_clock) == 192, "ABI size");
#endif

#define CW_LOCAL_INLINE static inline __attribute__((always_inline))
#ifdef __bpf__ /* knows no atomic load; what it loads is one word, and addresses depend on the generation */
#define CW_LOCAL_LOAD(field) (*(const volatile __typeof__(field)*)&(field))
#else
#define CW_LOCAL_LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#endif

/* The whole product is exact for two weeks at a tenth of a nanosecond per nanosecond, longer at less. */
CW_LOCAL_INLINE __u64 cw_local_at(const struct cw_local_line* l, __u64 t) {
  const __s64 passed = (__s64)(t - l->pivot_ns);
  const __s64 begun = passed < 0 ? 0 : passed;
  const __s64 worked = begun < l->work_ns ? begun : l->work_ns;
  const __s64 run = (((passed >> 16) * l->rate_q32) + (((passed & 0xffff) * l->rate_q32) >> 16)) >> 16;
  return t + (__u64)(l->ahead_ns + run + ((worked * l->work_q32) >> 32));
}

/* The line that holds. Lines are a millisecond apart: who is interrupted in between for two of them sees the
 * generation change and looks again; who is interrupted so thrice takes parts of two lines, which both hold by then. */
CW_LOCAL_INLINE void cw_local_get(const struct cw_local_clock* c, struct cw_local_line* l) {
  for (int i = 0; i < 3; ++i) {
    const __u64 generation = CW_LOCAL_LOAD(c->generation);
    const struct cw_local_line* held = &c->copy[generation & 1];
    l->pivot_ns = CW_LOCAL_LOAD(held->pivot_ns);
    l->ahead_ns = CW_LOCAL_LOAD(held->ahead_ns);
    l->rate_q32 = CW_LOCAL_LOAD(held->rate_q32);
    l->work_q32 = CW_LOCAL_LOAD(held->work_q32);
    l->work_ns = CW_LOCAL_LOAD(held->work_ns);
    if (CW_LOCAL_LOAD(c->generation) == generation) break;
  }
}

#endif
