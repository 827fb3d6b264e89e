/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Shared by restore.bpf.c and the benchmark. */
#ifndef CW_TESTS_BENCH_RESTORE_H
#define CW_TESTS_BENCH_RESTORE_H

#include "maps/wire.h"

#define BENCH_REQUESTS 4096
#define BENCH_REQUEST_LEN (14 + 20 + CW_PROBE_UDP_LEN)
#define BENCH_SPORT_OFFSET (14 + 20)

struct bench_request {
  __u8 frame[BENCH_REQUEST_LEN];
  __u8 pad[8 - BENCH_REQUEST_LEN % 8];
};

#endif
