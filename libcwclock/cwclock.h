/* SPDX-License-Identifier: Apache-2.0 */
/* libcwclock: fleet time, read by any process from a page that the agent (cwagentd) keeps in shared memory.
 *
 *   int64_t earliest, latest;
 *   int error = cw_clock_now(&earliest, &latest);
 *   if (error) fprintf(stderr, "%s\n", cw_clock_strerror(error));
 *
 * Fleet time is the timeline that all hosts share: nanoseconds since the fleet epoch, an instant that the swarm of
 * agents chose. It is no calendar time; with an anchor to TAI somewhere in the fleet, TAI is known too
 * (cw_clock_now_tai). Two events are in order for certain when the latest of one is before the earliest of the other,
 * on whatever hosts.
 *
 * Units: nanoseconds. Returns: 0, or one of enum cw_clock_error, which are negative; outputs are written only with 0.
 * A time is refused when it could be wrong: while the host is not synchronised, after it slept, when the agent has been
 * gone for longer than its promise holds. A host that lost its neighbours is free-running: readable, with a growing
 * bound.
 *
 * Cost: reading makes no system call as long as the agent is alive and the kernel's clocks are in the vDSO. When the
 * page is no longer fresh, a call looks for a newer page at most ten times per second.
 * Thread rule: every function may be called from any thread, in a child after fork(), and in a signal handler;
 * cw_clock_close() only when no other thread uses the handle. The library starts no thread, holds no lock and no file
 * descriptor, sets no signal handler, and needs libc only.
 * Stability: new functions get new symbol versions; structures grow into their reserved fields only. */
#ifndef CWCLOCK_H
#define CWCLOCK_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the agent's instance "default". The environment's CWFABRIC_CLOCK names another page, for cw_clock_open(NULL) and
 * the functions without a handle; set-user-ID programs ignore it. */
#define CW_CLOCK_DEFAULT_PATH "/run/cwfabric/default/clock"
#define CW_CLOCK_ENVIRONMENT "CWFABRIC_CLOCK"

enum cw_clock_error {
  CW_CLOCK_ENOPAGE = -1,     /* no page there */
  CW_CLOCK_EPERMISSION = -2, /* there, but not for this user */
  CW_CLOCK_EUNSAFE = -3,     /* users other than its owner may write to it */
  CW_CLOCK_EFORMAT = -4,     /* no clock page, or cut short */
  CW_CLOCK_EVERSION = -5,    /* a layout that this library does not know */
  CW_CLOCK_EBOOT = -6,       /* left over from an earlier boot */
  CW_CLOCK_ETIMENS = -7,     /* this process lives in another time namespace than the agent */
  CW_CLOCK_ESTALE = -8,      /* the agent has not written for too long */
  CW_CLOCK_EUNKNOWN = -9,    /* the host is not synchronised */
  CW_CLOCK_EDISRUPTED =
      -10,               /* the host slept, or its virtual machine was moved, and fleet time has not been found again */
  CW_CLOCK_EBUSY = -11,  /* the page never stands still */
  CW_CLOCK_ERANGE = -12, /* the timestamp is older than the timeline, or its clock was set since */
  CW_CLOCK_ECLOCK = -13, /* timestamps of this clock can't be converted */
  CW_CLOCK_ENOTAI = -14, /* nobody in the fleet knows TAI */
  CW_CLOCK_EINVALID = -15,  /* an argument is wrong */
  CW_CLOCK_ESYSTEM = -16,   /* a system call failed; see errno */
  CW_CLOCK_ETIMELINE = -17, /* times of different timelines, or of one that is not told, can't be compared */
};

enum cw_clock_state {
  CW_CLOCK_UNKNOWN = 0,
  CW_CLOCK_SYNCHRONISED = 1,
  CW_CLOCK_FREE_RUNNING = 2, /* no fresh measurement: the last line is continued */
  CW_CLOCK_DISRUPTED = 3,
};

struct cw_clock_time {
  int64_t fleet_ns;        /* the best guess */
  int64_t earliest_ns;     /* the truth is not before ... */
  int64_t latest_ns;       /* ... and not after */
  int64_t error_est_ns;    /* the likely error of fleet_ns, far below half the interval */
  int64_t tai_offset_ns;   /* fleet_ns + tai_offset_ns is TAI since 1970, if tai_bound_ns >= 0 ... */
  int64_t tai_bound_ns;    /* ... and the truth is within tai_bound_ns of it; -1: TAI is not known */
  int32_t tai_minus_utc_s; /* 0: not known */
  uint32_t state;          /* enum cw_clock_state */
  uint64_t timeline;       /* times of different timelines can't be compared; 0: the agent does not tell */
  uint32_t epoch;          /* on this host another epoch means that fleet time may have jumped */
  uint32_t base_clock;     /* the clock that was read: CLOCK_MONOTONIC or CLOCK_MONOTONIC_RAW ... */
  int64_t base_ns;         /* ... and what it showed */
  uint64_t reserved[5];
};

struct cw_clock; /* a page, opened */

/* Fleet time of an instant during the call lies in [earliest, latest]. The page is the default one, opened by the first
 * call. */
int cw_clock_now(int64_t* earliest_ns, int64_t* latest_ns);

/* The same as TAI, in nanoseconds since 1970-01-01 00:00:00 TAI (what CLOCK_TAI counts). */
int cw_clock_now_tai(int64_t* earliest_ns, int64_t* latest_ns);

/* Opens a page; path NULL is the default one. *clock is set to NULL when it fails. */
int cw_clock_open(const char* path, struct cw_clock** clock);
void cw_clock_close(struct cw_clock* clock);

/* Everything that is known of now. clock NULL: the default page. */
int cw_clock_read(struct cw_clock* clock, struct cw_clock_time* now);

/* Fleet time at a timestamp of a local clock: CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME or CLOCK_REALTIME.
 * Timestamps may be old, or in the future: the interval widens with the distance from now. Refused (CW_CLOCK_ERANGE):
 * timestamps from before the present epoch, and of CLOCK_REALTIME if that was set in between. clock NULL: the default.
 */
int cw_clock_convert(struct cw_clock* clock, clockid_t local_clock, int64_t local_ns, struct cw_clock_time* then);

/* The state alone, without refusal: enum cw_clock_state, or an error (stale and foreign pages are errors). */
int cw_clock_get_state(struct cw_clock* clock);

/* How much later `to` is than `from`, which may be of different hosts: the truth lies in [least, most]; least > 0:
 * `from` came first for certain. Refused (CW_CLOCK_ETIMELINE) unless both are of one timeline: keep its id beside each
 * time that you store or send. Of times of one host also compare the epochs: fleet time may have jumped between two of
 * them. */
int cw_clock_difference(const struct cw_clock_time* from, const struct cw_clock_time* to, int64_t* least_ns,
                        int64_t* most_ns);

/* A sentence that says what is wrong and what to do. Static text; never NULL. */
const char* cw_clock_strerror(int error);
const char* cw_clock_state_name(int state);

#ifdef __cplusplus
}
#endif
#endif
