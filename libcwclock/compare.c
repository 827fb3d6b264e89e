/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "libcwclock/cwclock.h"

/* Times that somebody has stored may be anything: the difference ends where the numbers do. */
static int64_t minus(int64_t a, int64_t b) {
  int64_t difference;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < b ? INT64_MIN : INT64_MAX;
}

int cw_clock_difference(const struct cw_clock_time* from, const struct cw_clock_time* to, int64_t* least_ns,
                        int64_t* most_ns) {
  if (!from || !to || !least_ns || !most_ns) return CW_CLOCK_EINVALID;
  if (from->timeline == 0 || from->timeline != to->timeline) return CW_CLOCK_ETIMELINE;
  *least_ns = minus(to->earliest_ns, from->latest_ns);
  *most_ns = minus(to->latest_ns, from->earliest_ns);
  return 0;
}
