/* SPDX-License-Identifier: Apache-2.0 */
/* From the page and a reading of the local clock to fleet time. Sources: the interval of TrueTime (Corbett et al.,
 * Spanner, OSDI 2012); the seqlock with two copies is Linux' seqcount_latch. */
#define _GNU_SOURCE
#include <stddef.h>

#include "libcwclock/internal.h"

#define FOREWARD_NS 1000000      /* a line from later than that is of another boot or time namespace */
#define CHECK_INTERVAL_NS 100000 /* a suspend lasts longer */
#define CHECK_SLACK_NS 1000
#define BOUND_MAX_NS (1ull << 60)
#define ROUNDING_NS 2 /* BOOTTIME - MONOTONIC to the nanosecond, and the product */
#define TRIES 64

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define INLINE static inline __attribute__((always_inline))

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;
typedef uint64_t __attribute__((may_alias)) word;

#define WORDS_OF(field) (offsetof(struct cw_clock_line, field) / sizeof(uint64_t))
#define WORDS_NOW WORDS_OF(error_est_ns)
#define WORDS_TIME WORDS_OF(raw_ns)
#define WORDS_ALL (sizeof(struct cw_clock_line) / sizeof(uint64_t))

union copy {
  struct cw_clock_line line;
  uint64_t words[WORDS_ALL];
};

struct instant {
  int64_t boot_ns, base_ns, mono_ns;
  clockid_t base_clock;
};

INLINE int64_t add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
} /* wraps, whatever the page says */
INLINE int64_t sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
INLINE uint64_t distance(int64_t a, int64_t b) { return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a; }

INLINE int64_t stretched(int64_t ns, int64_t slope_q44) { return add(ns, (int64_t)(((wide)ns * slope_q44) >> 44)); }

INLINE uint64_t growth(uint64_t ns, uint32_t rate_q32) { return (uint64_t)(((unsigned_wide)ns * rate_q32) >> 32); }

INLINE int take_copy(const struct cw_clock_page* page, union copy* out, size_t words, clockid_t* base_clock) {
  for (int i = 0; i < TRIES; ++i) {
    const uint64_t generation = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
    const word* from = (const word*)&page->copy[generation & 1];
    *base_clock = (clockid_t)__atomic_load_n(&page->base_clock, __ATOMIC_ACQUIRE); /* another file may have another */
    for (size_t w = 0; w < words; ++w) out->words[w] = __atomic_load_n(from + w, __ATOMIC_ACQUIRE);
    if (LIKELY(__atomic_load_n(&page->generation, __ATOMIC_RELAXED) == generation)) return 0;
  }
  return CW_CLOCK_EBUSY;
}

/* One reading serves as time and as proof that the host did not sleep: CLOCK_BOOTTIME counts sleep, CLOCK_MONOTONIC
 * does not. A sleep makes the reading jump, so that the two are compared again after each 100 us that BOOTTIME has
 * gone. */
INLINE int slept(struct cw_clock* clock, const struct cw_clock_line* line, int64_t boot_ns) {
  if (LIKELY((uint64_t)sub(boot_ns, __atomic_load_n(&clock->checked_ns, __ATOMIC_RELAXED)) < CHECK_INTERVAL_NS))
    return 0;
  /* Read after boot_ns, so an interruption in between only makes it later. */
  if (cwck_clock_ns(CLOCK_MONOTONIC) < sub(sub(boot_ns, line->suspend_ns), CHECK_SLACK_NS)) return 1;
  __atomic_store_n(&clock->checked_ns, boot_ns, __ATOMIC_RELAXED);
  return 0;
}

INLINE int judge(struct cw_clock* clock, const struct cw_clock_line* line, const struct instant* now) {
  if (now->base_ns < sub(line->base_ns, FOREWARD_NS)) return CW_CLOCK_EBOOT;
  if (now->mono_ns > line->void_after_ns) return CW_CLOCK_ESTALE;
  if (slept(clock, line, now->boot_ns)) return CW_CLOCK_EDISRUPTED;
  if (LIKELY(line->state == CW_CLOCK_SYNCHRONISED || line->state == CW_CLOCK_FREE_RUNNING)) return 0;
  if (line->state == CW_CLOCK_UNKNOWN) return CW_CLOCK_EUNKNOWN;
  return line->state == CW_CLOCK_DISRUPTED ? CW_CLOCK_EDISRUPTED : CW_CLOCK_EFORMAT;
}

INLINE int look(struct cw_clock* clock, const struct cw_clock_page* page, union copy* out, size_t words,
                struct instant* now) {
  const int error = take_copy(page, out, words, &now->base_clock);
  if (!LIKELY(error == 0)) return error;
  /* After the copy, so that a writer or an interruption in between can only make the line older, which is judged. */
  if (now->base_clock == CLOCK_MONOTONIC) {
    now->boot_ns = cwck_clock_ns(CLOCK_BOOTTIME);
    now->base_ns = now->mono_ns = sub(now->boot_ns, out->line.suspend_ns);
  } else {
    now->base_ns = cwck_clock_ns(CLOCK_MONOTONIC_RAW);
    now->boot_ns = cwck_clock_ns(CLOCK_BOOTTIME);
    now->mono_ns = sub(now->boot_ns, out->line.suspend_ns);
  }
  return judge(clock, &out->line, now);
}

/* `error` is what the first look said; `first` the page that it was at. */
static __attribute__((noinline)) int take_slowly(struct cw_clock* clock, const struct cw_clock_page* first,
                                                 union copy* out, struct instant* now, int error) {
  const int found = cwck_look_for_page(clock, cwck_clock_ns(CLOCK_BOOTTIME));
  const struct cw_clock_page* page = __atomic_load_n(&clock->page, __ATOMIC_ACQUIRE);
  if (page && (found || !first)) return look(clock, page, out, WORDS_ALL, now);
  if (page) return error;
  error = __atomic_load_n(&clock->last_error, __ATOMIC_RELAXED);
  return error ? error : CW_CLOCK_ENOPAGE;
}

/* The present line and the time. Looks for a newer page when this one is retired, no longer fresh, or refused for its
 * age; a page that is kept up to date and says that nothing is known is no reason to. */
INLINE int take(struct cw_clock* clock, union copy* out, size_t words, struct instant* now) {
  const struct cw_clock_page* page = __atomic_load_n(&clock->page, __ATOMIC_ACQUIRE);
  int error = CW_CLOCK_ENOPAGE;
  if (LIKELY(page != NULL)) {
    error = look(clock, page, out, words, now);
    if (LIKELY(error != CW_CLOCK_EBUSY && error != CW_CLOCK_EBOOT && now->mono_ns <= out->line.fresh_until_ns &&
               !__atomic_load_n(&page->retired, __ATOMIC_RELAXED))) {
      return error;
    }
  }
  return take_slowly(clock, page, out, now, error);
}

INLINE struct cw_clock* or_default(struct cw_clock* clock) { return clock ? clock : &cwck_default; }

/* Fleet time at a time of the base clock, and its bound; extra_ns: how far off base_ns may be. */
INLINE int place(const struct cw_clock_line* line, int64_t base_ns, uint64_t extra_ns, int64_t* fleet_ns,
                 uint64_t* bound_ns) {
  *fleet_ns = add(line->fleet_ns, stretched(sub(base_ns, line->base_ns), line->slope_q44));
  *bound_ns = line->bound_ns + growth(distance(base_ns, line->base_ns), line->drift_q32) + extra_ns + ROUNDING_NS;
  return LIKELY(line->bound_ns < BOUND_MAX_NS && *bound_ns < BOUND_MAX_NS) ? 0 : CW_CLOCK_ERANGE;
}

int cw_clock_now(int64_t* earliest_ns, int64_t* latest_ns) {
  union copy c;
  struct instant now;
  int64_t fleet_ns;
  uint64_t bound_ns;
  int error = take(&cwck_default, &c, WORDS_NOW, &now);
  if (!LIKELY(error == 0)) return error;
  error = place(&c.line, now.base_ns, 0, &fleet_ns, &bound_ns);
  if (error) return error;
  *earliest_ns = sub(fleet_ns, (int64_t)bound_ns);
  *latest_ns = add(fleet_ns, (int64_t)bound_ns);
  return 0;
}

/* Fills all of *out for base_ns. TAI may drift against fleet time no faster than a clock of the fleet does. */
static int describe(const struct cw_clock_line* line, const struct instant* now, int64_t base_ns, uint64_t extra_ns,
                    struct cw_clock_time* out) {
  const uint64_t elapsed_ns = distance(base_ns, line->base_ns);
  const uint64_t tai_bound_ns = (uint64_t)line->tai_bound_ns + growth(elapsed_ns, line->drift_q32);
  struct cw_clock_time t = {0};
  uint64_t bound_ns, likely_ns;
  const int error = place(line, base_ns, extra_ns, &t.fleet_ns, &bound_ns);
  if (error) return error;
  t.earliest_ns = sub(t.fleet_ns, (int64_t)bound_ns);
  t.latest_ns = add(t.fleet_ns, (int64_t)bound_ns);
  likely_ns = line->error_est_ns + growth(elapsed_ns, line->error_drift_q32) + extra_ns;
  t.error_est_ns = (int64_t)(likely_ns < bound_ns ? likely_ns : bound_ns);
  t.tai_bound_ns = -1;
  if (line->tai_bound_ns >= 0 && tai_bound_ns < BOUND_MAX_NS) {
    t.tai_offset_ns =
        add(line->tai_offset_ns, (int64_t)(((wide)sub(base_ns, line->base_ns) * line->tai_slope_q42) >> 42));
    t.tai_bound_ns = (int64_t)tai_bound_ns;
  }
  t.tai_minus_utc_s = line->tai_minus_utc_s;
  t.state = now->mono_ns > line->fresh_until_ns ? CW_CLOCK_FREE_RUNNING : line->state;
  t.timeline = line->timeline;
  t.epoch = line->epoch;
  t.base_clock = (uint32_t)now->base_clock;
  t.base_ns = base_ns;
  *out = t;
  return 0;
}

int cw_clock_read(struct cw_clock* clock, struct cw_clock_time* out) {
  union copy c;
  struct instant now;
  int error;
  if (!out) return CW_CLOCK_EINVALID;
  clock = or_default(clock);
  error = take(clock, &c, WORDS_TIME, &now);
  return error ? error : describe(&c.line, &now, now.base_ns, 0, out);
}

int cw_clock_now_tai(int64_t* earliest_ns, int64_t* latest_ns) {
  struct cw_clock_time t;
  const int error = cw_clock_read(NULL, &t);
  if (error) return error;
  if (t.tai_bound_ns < 0) return CW_CLOCK_ENOTAI;
  *earliest_ns = sub(add(t.earliest_ns, t.tai_offset_ns), t.tai_bound_ns);
  *latest_ns = add(add(t.latest_ns, t.tai_offset_ns), t.tai_bound_ns);
  return 0;
}

int cw_clock_get_state(struct cw_clock* clock) {
  union copy c;
  struct instant now;
  const int error = take(or_default(clock), &c, WORDS_NOW, &now);
  if (error == CW_CLOCK_EUNKNOWN) return CW_CLOCK_UNKNOWN;
  if (error == CW_CLOCK_EDISRUPTED) return CW_CLOCK_DISRUPTED;
  if (error) return error;
  return now.mono_ns > c.line.fresh_until_ns ? CW_CLOCK_FREE_RUNNING : (int)c.line.state;
}

/* ---- timestamps of other clocks ---- */

/* A time of two clocks at once, as one moment between two readings of the first shows it. */
struct pair {
  int64_t first_ns, second_ns;
  uint64_t error_ns;
};

static struct pair read_pair(clockid_t first, clockid_t second) {
  struct pair best = {0, 0, UINT64_MAX};
  for (int i = 0; i < 4; ++i) {
    const int64_t before_ns = cwck_clock_ns(first);
    const int64_t second_ns = cwck_clock_ns(second);
    const int64_t after_ns = cwck_clock_ns(first);
    const uint64_t error_ns = distance(after_ns, before_ns) / 2 + 1;
    if (error_ns < best.error_ns)
      best = (struct pair){add(before_ns, sub(after_ns, before_ns) / 2), second_ns, error_ns};
  }
  return best;
}

/* A line between MONOTONIC and RAW, from x to y. */
struct relation {
  int64_t x_ns, y_ns, slope_q44;
  uint64_t error_ns;
  uint32_t slew_q32;
};

/* NTP may have slewed MONOTONIC since the page's pair was taken: the pair of now shows by how much in all, and in
 * between the two can be off by what they may have slewed since the nearer one. */
static int64_t relate(const struct relation* r, const struct pair* now, int64_t x_ns, uint64_t* error_ns) {
  const int64_t line_ns = add(r->y_ns, stretched(sub(x_ns, r->x_ns), r->slope_q44));
  const int64_t off_ns = sub(now->second_ns, add(r->y_ns, stretched(sub(now->first_ns, r->x_ns), r->slope_q44)));
  const uint64_t from_page_ns = distance(x_ns, r->x_ns);
  const uint64_t from_now_ns = distance(x_ns, now->first_ns);
  const uint64_t span_ns = distance(now->first_ns, r->x_ns);
  if (x_ns <= r->x_ns) {
    *error_ns = r->error_ns + growth(from_page_ns, r->slew_q32) + ROUNDING_NS;
    return line_ns;
  }
  *error_ns = r->error_ns + now->error_ns +
              growth(from_page_ns < from_now_ns ? from_page_ns : from_now_ns, r->slew_q32) + ROUNDING_NS;
  if (x_ns >= now->first_ns || span_ns == 0) return add(line_ns, off_ns);
  return add(line_ns, (int64_t)((wide)off_ns * (wide)from_page_ns / (wide)span_ns));
}

static int64_t mono_of_raw(const struct cw_clock_line* line, int64_t raw_ns, uint64_t* error_ns) {
  const struct pair now = read_pair(CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC);
  /* 1 / (1 + s) - 1, to the second order: slopes are below a thousandth. */
  const int64_t square_q44 = (int64_t)(((wide)line->raw_slope_q44 * line->raw_slope_q44) >> 44);
  const struct relation r = {line->raw_ns, line->mono_ns, sub(square_q44, line->raw_slope_q44), line->raw_error_ns,
                             line->slew_q32};
  return relate(&r, &now, raw_ns, error_ns);
}

static int64_t raw_of_mono(const struct cw_clock_line* line, int64_t mono_ns, uint64_t* error_ns) {
  const struct pair now = read_pair(CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW);
  const struct relation r = {line->mono_ns, line->raw_ns, line->raw_slope_q44, line->raw_error_ns, line->slew_q32};
  return relate(&r, &now, mono_ns, error_ns);
}

/* REALTIME is MONOTONIC plus a number that changes only when the clock is set; slewing touches both alike. */
static int mono_of_realtime(const struct cw_clock_line* line, int64_t realtime_ns, int64_t* mono_ns,
                            uint64_t* error_ns) {
  const struct pair now = read_pair(CLOCK_MONOTONIC, CLOCK_REALTIME);
  const int64_t difference_ns = sub(now.second_ns, now.first_ns);
  const uint64_t width_ns = (uint64_t)sub(line->realtime_high_ns, line->realtime_low_ns);
  const int64_t middle_ns = add(line->realtime_low_ns, (int64_t)(width_ns / 2));
  if (distance(difference_ns, middle_ns) > now.error_ns + width_ns / 2 + ROUNDING_NS) return CW_CLOCK_ERANGE;
  *mono_ns = sub(realtime_ns, middle_ns);
  *error_ns = width_ns / 2 + 1;
  return *mono_ns < line->realtime_since_ns ? CW_CLOCK_ERANGE : 0;
}

static int mono_of(const struct cw_clock_line* line, clockid_t clock, int64_t ns, int64_t* mono_ns,
                   uint64_t* error_ns) {
  *error_ns = 0;
  switch (clock) {
    case CLOCK_MONOTONIC:
      *mono_ns = ns;
      return 0;
    case CLOCK_BOOTTIME:
      *mono_ns = sub(ns, line->suspend_ns);
      return 0;
    case CLOCK_MONOTONIC_RAW:
      *mono_ns = mono_of_raw(line, ns, error_ns);
      return 0;
    case CLOCK_REALTIME:
      return mono_of_realtime(line, ns, mono_ns, error_ns);
    default:
      return CW_CLOCK_ECLOCK;
  }
}

int cw_clock_convert(struct cw_clock* clock, clockid_t local_clock, int64_t local_ns, struct cw_clock_time* then) {
  union copy c;
  struct instant now;
  int64_t base_ns = local_ns;
  uint64_t mono_error_ns = 0, raw_error_ns = 0;
  int error;
  if (!then) return CW_CLOCK_EINVALID;
  clock = or_default(clock);
  error = take(clock, &c, WORDS_ALL, &now);
  if (error) return error;
  if (local_clock != now.base_clock) {
    error = mono_of(&c.line, local_clock, local_ns, &base_ns, &mono_error_ns);
    if (error) return error;
    if (now.base_clock == CLOCK_MONOTONIC_RAW) base_ns = raw_of_mono(&c.line, base_ns, &raw_error_ns);
  }
  if (base_ns < c.line.since_ns) return CW_CLOCK_ERANGE;
  return describe(&c.line, &now, base_ns, mono_error_ns + raw_error_ns, then);
}
