/* SPDX-License-Identifier: Apache-2.0 */
/* Between the sources of libcwclock. */
#ifndef CWCLOCK_INTERNAL_H
#define CWCLOCK_INTERNAL_H

#include <stdint.h>
#include <time.h>

#include "libcwclock/cwclock.h"
#include "libcwclock/cwclock_page.h"

/* No lock anywhere, so that a fork() or a signal at any point leaves nothing held. A newer page is mapped over the
 * older one, at the same address: readers need not be told, and nothing is ever unmapped under them. */
struct cw_clock {
  const struct cw_clock_page* page; /* NULL until one was found; then constant */
  int64_t look_after_ns;            /* CLOCK_BOOTTIME: no look for a newer page before */
  int64_t checked_ns;               /* CLOCK_BOOTTIME of the last check for a suspend */
  int32_t last_error;               /* of the last look */
  char path[];                      /* empty: the default, by the environment */
};

static inline int64_t cwck_clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#pragma GCC visibility push(hidden)

extern struct cw_clock cwck_default;

/* Looks for the page, or a newer one, unless that was done within the last 100 ms. Returns 1 if there was one and it is
 * mapped now, else 0; `last_error` then says why. Leaves errno as it was, except with CW_CLOCK_ESYSTEM. */
int cwck_look_for_page(struct cw_clock* clock, int64_t boot_ns);

#pragma GCC visibility pop

#endif
