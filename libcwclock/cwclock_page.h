/* SPDX-License-Identifier: Apache-2.0 */
/* The page: what the agent writes and libcwclock reads. For other readers of the page, and for the agent; programs
 * should use cwclock.h.
 *
 * A file of one memory page on a tmpfs, mapped by all. Integers are in the host's byte order: the page never leaves the
 * host, and a foreign one shows by its magic. Fields are never moved; new ones are appended, `size` grows and `minor`
 * counts; a change of meaning needs a new `version`.
 *
 * Seqlock with two copies (a latch): copy[generation & 1] holds. The writer fills the other copy and then adds one to
 * `generation`. A reader takes the generation, the copy, and the generation again; equal: the copy is whole. So a
 * reader never waits for the writer, and a writer that was killed anywhere leaves a whole copy behind. Every 8 bytes of
 * a copy are stored with release and loaded with acquire order, which makes fences unnecessary. A new file's generation
 * starts at a random number, so that a copy taken while the file is replaced can't be taken for whole.
 *
 * Life of the file: it is created under another name, filled, and renamed into place; never truncated, never written to
 * by anybody but its creator, except for `retired`, which its successor sets after the rename. Readers then open the
 * new file. A writer that ends leaves the file: its line stays true, with a growing bound, until void_after_ns. */
#ifndef CWCLOCK_PAGE_H
#define CWCLOCK_PAGE_H

#include <stdint.h>

#define CW_CLOCK_PAGE_MAGIC 0x4357434bu /* "CWCK" */
#define CW_CLOCK_PAGE_VERSION 1
#define CW_CLOCK_PAGE_MINOR 1    /* 1: tai_slope_q42, which was reserved, and 0, before */
#define CW_CLOCK_PAGE_BYTES 4096 /* of the file */

/* fleet time at base clock b:  fleet_ns + (b - base_ns) * (1 + slope_q44 / 2^44)
 * its bound:                   bound_ns + |b - base_ns| * drift_q32 / 2^32
 * its likely error:            error_est_ns + |b - base_ns| * error_drift_q32 / 2^32
 * TAI - fleet time:            tai_offset_ns + (b - base_ns) * tai_slope_q42 / 2^42 */
struct cw_clock_line {
  int64_t base_ns;        /* of the base clock, when the line was written */
  int64_t fleet_ns;       /* at base_ns */
  int64_t slope_q44;      /* rate of fleet time over the base clock's, minus 1 */
  int64_t suspend_ns;     /* CLOCK_BOOTTIME - CLOCK_MONOTONIC; another value now: the host slept since */
  int64_t fresh_until_ns; /* CLOCK_MONOTONIC; later readers call a synchronised line free-running */
  int64_t void_after_ns;  /* CLOCK_MONOTONIC; later the line is refused */
  uint64_t bound_ns;      /* at base_ns */
  uint32_t drift_q32;
  uint32_t state; /* enum cw_clock_state */
  /* 64 */
  uint64_t error_est_ns;
  uint32_t error_drift_q32;
  uint32_t epoch;
  uint64_t timeline;
  int64_t tai_offset_ns; /* TAI - fleet time, at base_ns */
  int64_t tai_bound_ns;  /* of that alone, at base_ns; grows by drift_q32; below 0: TAI is not known */
  int32_t tai_minus_utc_s;
  int32_t tai_slope_q42; /* rate of TAI - fleet time over the base clock's */
  int64_t since_ns;      /* of the base clock: the line does not hold for times before */
  int64_t mono_ns;       /* CLOCK_MONOTONIC at base_ns; the same if that is the base clock */
  /* 128: how the local clocks relate, for timestamps of the others */
  int64_t raw_ns;        /* CLOCK_MONOTONIC_RAW at mono_ns */
  int64_t raw_slope_q44; /* rate of CLOCK_MONOTONIC_RAW over CLOCK_MONOTONIC's, minus 1 */
  uint64_t raw_error_ns;
  uint32_t slew_q32; /* how fast the two may leave that line */
  uint32_t reserved1;
  int64_t realtime_low_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC lies in [low, high] ... */
  int64_t realtime_high_ns;
  int64_t realtime_since_ns; /* ... since this time of CLOCK_MONOTONIC */
  uint64_t reserved2;
};

struct cw_clock_page {
  /* Constant for the life of the file. */
  uint32_t magic;
  uint16_t version;
  uint16_t minor;
  uint32_t size;           /* of this struct, as the writer knows it */
  uint32_t base_clock;     /* CLOCK_MONOTONIC or CLOCK_MONOTONIC_RAW */
  char boot_id[40];        /* /proc/sys/kernel/random/boot_id, NUL-terminated; empty: not known */
  uint64_t time_namespace; /* inode of the writer's /proc/self/ns/time; 0: not known */
  /* 64 */
  uint64_t generation;
  uint64_t retired; /* 1: a successor is at the page's path */
  uint64_t reserved[6];
  /* 128 */
  struct cw_clock_line copy[2];
};

#ifdef __cplusplus
#define CW_CLOCK_ASSERT(what, text) static_assert(what, text)
#else
#define CW_CLOCK_ASSERT(what, text) _Static_assert(what, text)
#endif
CW_CLOCK_ASSERT(sizeof(struct cw_clock_line) == 192, "layout of version 1");
CW_CLOCK_ASSERT(sizeof(struct cw_clock_page) == 512, "layout of version 1");
CW_CLOCK_ASSERT(__builtin_offsetof(struct cw_clock_page, generation) == 64, "layout of version 1");
CW_CLOCK_ASSERT(__builtin_offsetof(struct cw_clock_line, error_est_ns) == 64, "layout of version 1");
CW_CLOCK_ASSERT(__builtin_offsetof(struct cw_clock_line, raw_ns) == 128, "layout of version 1");

#endif
