/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Fleet time for BPF programs: one record in an array map that userspace has mapped (ARRAY[1], BPF_F_MMAPABLE), written
 * by the agent ten times per second, and when CLOCK_MONOTONIC is slewed.
 *
 * Two copies, so that nobody waits: copy[generation & 1] holds. The agent fills the other copy, then adds one to
 * generation, every word with release order. A program that is interrupted between its first and last load could see a
 * mixture, and takes the generation again to tell.
 *
 * Local time t here is bpf_ktime_get_ns(), whatever the agent makes of it (local_clock.h).
 *   fleet time at local t:  fleet_ns + (t - local_ns) + (t - local_ns) * slope_q32 / 2^32
 *   TAI at local t:         that + tai_offset_ns + (t - local_ns) * tai_slope_q32 / 2^32
 * Units: nanoseconds. Both compilers; BPF divides without sign and has no 128-bit product, hence the fixed point. */
#ifndef CW_MAPS_CLOCK_ABI_H
#define CW_MAPS_CLOCK_ABI_H

#include <linux/types.h>

#define CW_FLEET_ELAPSED_MAX (1ull << 40) /* 18 minutes: no product overflows up to slopes of a thousandth */

enum cw_fleet_state { /* as in libcwclock/cwclock.h */
                      CW_FLEET_UNKNOWN = 0,
                      CW_FLEET_SYNCHRONISED = 1,
                      CW_FLEET_FREE_RUNNING = 2,
                      CW_FLEET_DISRUPTED = 3,
};

struct cw_fleet_line {
  __u64 local_ns;
  __s64 fleet_ns;       /* at local_ns */
  __s64 slope_q32;      /* rate of fleet time over local time's, minus 1 */
  __u64 fresh_until_ns; /* local time; later the line is free-running */
  __u64 void_after_ns;  /* local time; later it must not be used */
  __u64 bound_ns;       /* at local_ns */
  __u64 error_est_ns;
  __u32 drift_q32; /* growth of bound_ns */
  __u32 state;     /* enum cw_fleet_state */
  __u32 epoch;
  __u32 reserved0;
  __u64 timeline;
  __s64 tai_offset_ns; /* TAI - fleet time, at local_ns */
  __s64 tai_bound_ns;  /* of that alone, at local_ns; grows by drift_q32; below 0: TAI is not known */
  __s64 tai_slope_q32; /* rate of TAI - fleet time over local time's; 0 by agents that did not tell it */
  __u64 reserved[3];
};

struct cw_fleet_clock {
  __u64 generation;
  __u64 reserved[7];
  struct cw_fleet_line copy[2];
};

#ifdef __cplusplus
static_assert(sizeof(struct cw_fleet_line) == 128, "ABI size");
static_assert(sizeof(struct cw_fleet_clock) == 320, "ABI size");
#else
_Static_assert(sizeof(struct cw_fleet_line) == 128, "ABI size");
_Static_assert(sizeof(struct cw_fleet_clock) == 320, "ABI size");
#endif

#define CW_FLEET_INLINE static inline __attribute__((always_inline))

/* The time at local time t in *ns and its bound in *bound_ns; 0, or -1: not known now. Two tries: updates are
 * milliseconds apart. tai: a constant. */
CW_FLEET_INLINE int cw_fleet_time_at(const struct cw_fleet_clock* c, __u64 t, int tai, __s64* ns, __u64* bound_ns) {
  for (int i = 0; i < 2; ++i) {
    const volatile struct cw_fleet_clock* shared = c;
    const __u64 generation = shared->generation;
    const volatile struct cw_fleet_line* l = &shared->copy[generation & 1];
    const __u64 local_ns = l->local_ns;
    const __s64 base_ns = l->fleet_ns;
    const __s64 slope = l->slope_q32;
    const __u64 void_after_ns = l->void_after_ns;
    const __u64 bound = l->bound_ns;
    const __u32 drift = l->drift_q32;
    const __u32 state = l->state;
    const __s64 tai_offset_ns = tai ? l->tai_offset_ns : 0;
    const __s64 tai_slope = tai ? l->tai_slope_q32 : 0;
    const __s64 tai_bound_ns = tai ? l->tai_bound_ns : 0;
    const __s64 elapsed = (__s64)(t - local_ns);
    const __u64 distance = elapsed < 0 ? 0 - (__u64)elapsed : (__u64)elapsed;
    const __u64 growth = ((distance >> 8) * drift >> 24) + 2;
    /* An address dependency orders the loads of the copy after the first one. Before this last one they may be late by
     * a few on machines with a weak memory order: a writer laps a reader by two updates, milliseconds apart. */
    if (shared->generation != generation) continue;
    if (state != CW_FLEET_SYNCHRONISED && state != CW_FLEET_FREE_RUNNING) return -1;
    if (t > void_after_ns || distance > CW_FLEET_ELAPSED_MAX || tai_bound_ns < 0) return -1;
    *ns = base_ns + elapsed + ((elapsed * slope) >> 32);
    *bound_ns = bound + growth;
    if (!tai) return 0;
    *ns += tai_offset_ns + ((elapsed * tai_slope) >> 32);
    *bound_ns += (__u64)tai_bound_ns + growth;
    return 0;
  }
  return -1;
}

/* Fleet time at local time t. */
CW_FLEET_INLINE int cw_fleet_at(const struct cw_fleet_clock* c, __u64 t, __s64* fleet_ns, __u64* bound_ns) {
  return cw_fleet_time_at(c, t, 0, fleet_ns, bound_ns);
}

/* TAI at local time t, in nanoseconds since 1970-01-01 00:00:00 TAI; -1 as well while the fleet has no anchor. */
CW_FLEET_INLINE int cw_fleet_tai_at(const struct cw_fleet_clock* c, __u64 t, __s64* tai_ns, __u64* bound_ns) {
  return cw_fleet_time_at(c, t, 1, tai_ns, bound_ns);
}

#endif
