/* SPDX-License-Identifier: Apache-2.0 */
/* The public header in plain C11, as a foreign program includes it; links the static library. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>

#include "libcwclock/cwclock.h"

int main(void) {
  int64_t earliest, latest;
  int error = cw_clock_now(&earliest, &latest);
  if (error) {
    fprintf(stderr, "%s\n", cw_clock_strerror(error));
    return error == CW_CLOCK_ENOPAGE ? 0 : 1;
  }
  printf("%" PRId64 " %" PRId64 "\n", earliest, latest);
  return 0;
}
