/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* When the NIC saw the packet at hand, in local time. Zero and missing mean none (Linux: an XDP program that is bound
 * to one NIC may ask its driver, bpf_xdp_metadata_rx_timestamp; a driver that has no stamp says so or gives 0). BPF
 * only. */
#ifndef CW_BPF_NIC_STAMP_H
#define CW_BPF_NIC_STAMP_H

#include "bpf/dataplane.h"
#include "maps/arrival.h"

#ifdef CW_NIC_STAMPS
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md* ctx, __u64* timestamp) __ksym;
#else
static __noinline __u64 cw_lab_nic_time(void) {
  __u32 zero = 0;
  struct cw_lab_clock* c = bpf_map_lookup_elem(&cw_lab_nic, &zero);
  return c ? cw_lab_clock_at(c, bpf_ktime_get_ns()) : 0;
}
#endif

/* Before anything else: a simulated NIC looks at its clock now. */
static __noinline int cw_nic_stamp_take(struct xdp_md* ctx) {
  __u32 zero = 0;
  __u64* kept = bpf_map_lookup_elem(&cw_nic_stamp, &zero);
  __u64 stamp = 0;
  if (!kept) return 0;
#ifdef CW_NIC_STAMPS
  if (bpf_xdp_metadata_rx_timestamp(ctx, &stamp)) stamp = 0;
#else
  stamp = cw_lab_nic_time();
#endif
  *kept = stamp;
  return 0;
}

/* now: when we saw the packet. */
static __noinline int cw_nic_stamp_convert(struct xdp_md* ctx, __u64 now) {
  __u32 zero = 0;
  __u32 ifindex = ctx->ingress_ifindex;
  __u64* kept = bpf_map_lookup_elem(&cw_nic_stamp, &zero);
  struct cw_nic_line* line = bpf_map_lookup_elem(&cw_nic_lines, &ifindex);
  __u64 stamp;
  if (!kept) return 0;
  stamp = *kept;
  if (!stamp) return cw_count(CW_COUNT_nic_stamps_missing);
  stamp = line ? cw_nic_to_local(line, stamp, now) : 0;
  *kept = stamp;
  return cw_count(stamp ? CW_COUNT_nic_stamps : CW_COUNT_nic_stamps_off);
}

#define CW_LOOPBACK 1 /* in every network namespace (Linux, include/net/flow.h: LOOPBACK_IFINDEX) */

/* Of a frame that the agent shows (maps/arrival.h): by how much its device saw it earlier than we do, 0 = not told.
 * seen: when we saw it (CLOCK_MONOTONIC); now: the same in local time. No packet can bring a stamp along: metadata is
 * no part of it, another XDP program would have to make some, and even then the packet has the interface that it came
 * by, while what BPF_PROG_RUN shows has loopback's, to which this program is never attached. */
static __noinline __u64 cw_shown_age(struct xdp_md* ctx, __u64 seen, __u64 now) {
  const struct cw_arrival* a = (const struct cw_arrival*)(long)ctx->data_meta;
  __u64 ns, age = 0;
  if ((void*)(a + 1) > (void*)(long)ctx->data) goto done;
  if (ctx->ingress_ifindex != CW_LOOPBACK || a->magic != CW_ARRIVAL_MAGIC) goto done;
  ns = a->ns;
  if (seen - ns > CW_ARRIVAL_OLDEST_NS) { /* or of the future */
    cw_count(CW_COUNT_nic_stamps_off);
    goto done;
  }
  cw_count(CW_COUNT_nic_stamps);
  age = now - cw_with_lab_error(ns, cw_local_time(ns));
done:
  CW_FORGET(age, seen);
  return age;
}

/* 0 = none. */
static __noinline __u64 cw_nic_stamp_get(void) {
  __u32 zero = 0;
  __u64* kept = bpf_map_lookup_elem(&cw_nic_stamp, &zero);
  return kept ? *kept : 0;
}

#endif
