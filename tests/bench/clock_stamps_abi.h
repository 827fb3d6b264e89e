/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Shared by clock_stamps.bpf.c and the benchmark. */
#ifndef CW_TESTS_BENCH_CLOCK_STAMPS_ABI_H
#define CW_TESTS_BENCH_CLOCK_STAMPS_ABI_H

#include <linux/types.h>

#define STAMPS_PORT 4791        /* as RoCE, so that the switches treat it alike */
#define STAMPS_MAGIC 0xe7574d53 /* first byte of the payload as sent: an opcode of the manufacturers' range */
#define STAMPS_MAX (1 << 18)

struct stamps_payload {
  __be32 magic;
  __u32 path;
  __u64 t1;
  __u8 pad[48]; /* as long as a probe, roughly */
};

struct stamps_sample {
  __u64 t1; /* 0: not written */
  __u64 t2;
  __u32 path;
  __u32 reserved;
};

#endif
