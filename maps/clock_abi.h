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
  __s64 tai_offset_ns; /* TAI - fleet time */
  __s64 tai_bound_ns;  /* below 0: TAI is not known */
  __u64 reserved[4];
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

/* Fleet time at local time t in *fleet_ns and its bound in *bound_ns; 0, or -1: not known now. Two tries: updates
 * are milliseconds apart. */
CW_FLEET_INLINE int cw_fleet_at(const struct cw_fleet_clock* c, __u64 t, __s64* fleet_ns, __u64* bound_ns) {
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
    const __s64 elapsed = (__s64)(t - local_ns);
    const __u64 distance = elapsed < 0 ? 0 - (__u64)elapsed : (__u64)elapsed;
    /* An address dependency orders the loads of the copy after the first one. Before this last one they may be late by
     * a few on machines with a weak memory order: a writer laps a reader by two updates, milliseconds apart. */
    if (shared->generation != generation) continue;
    if (state != CW_FLEET_SYNCHRONISED && state != CW_FLEET_FREE_RUNNING) return -1;
    if (t > void_after_ns || distance > CW_FLEET_ELAPSED_MAX) return -1;
    *fleet_ns = base_ns + elapsed + ((elapsed * slope) >> 32);
    *bound_ns = bound + ((distance >> 8) * drift >> 24) + 2;
    return 0;
  }
  return -1;
}

#endif
