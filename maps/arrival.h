/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* What stands in front of a frame (XDP metadata) that the agent shows to the ingress program (BPF_PROG_RUN; Linux,
 * net/bpf/test_run.c: a multiple of 4 bytes, at most 32): when the NIC's device saw the frame arrive. Frames that
 * nobody showed have none, see bpf/nic_stamp.h. */
#ifndef CW_MAPS_ARRIVAL_H
#define CW_MAPS_ARRIVAL_H

#include <linux/types.h>

#define CW_ARRIVAL_MAGIC 0x31564952524157ffULL /* another layout takes another one */
#define CW_ARRIVAL_OLDEST_NS 100000000         /* an earlier arrival is not believed */

struct cw_arrival {
  __u64 magic; /* CW_ARRIVAL_MAGIC */
  __u64 ns;    /* CLOCK_MONOTONIC */
};

#ifdef __cplusplus
static_assert(sizeof(struct cw_arrival) == 16, "ABI size");
#else
_Static_assert(sizeof(struct cw_arrival) == 16, "ABI size");
#endif

#endif
