/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* A NIC's own clock in terms of local time (local_clock.h): a line that the agent keeps by cross-stamps, one record per
 * interface (cw_nic_lines: HASH by ifindex). Replaced as a whole, so a reader never sees half of one.
 *
 *   local at a NIC's stamp = local_ns + (stamp - nic_ns) · (1 + rate)
 *
 * Units: nanoseconds, rate in 2^-32. Both compilers: BPF divides without sign, hence the fixed point. */
#ifndef CW_MAPS_NIC_LINE_H
#define CW_MAPS_NIC_LINE_H

#include <linux/types.h>

#define CW_NIC_OLDEST_NS 10000000 /* a stamp that was taken so long before the packet was seen is not believed */

struct cw_nic_line {
  __u64 nic_ns;   /* the NIC's clock … */
  __u64 local_ns; /* … at this local time */
  __s64 rate_q32; /* local clock's rate over the NIC's, minus 1; at most 2^22 (a thousandth) either way */
  __u64 until_ns; /* local time: then nobody keeps the line any more */
  __u64 slack_ns; /* by so much a stamp may seem to be of the future */
};

#ifdef __cplusplus
static_assert(sizeof(struct cw_nic_line) == 40, "ABI size");
#else
_Static_assert(sizeof(struct cw_nic_line) == 40, "ABI size");
#endif

/* Local time of a stamp, or 0: no stamp, or none that can be believed of a packet that was seen at `now`. */
static inline __attribute__((always_inline)) __u64 cw_nic_to_local(const struct cw_nic_line* l, __u64 nic, __u64 now) {
  const __s64 d = (__s64)(nic - l->nic_ns);
  __u64 local;
  __s64 age;
  if (!nic || now > l->until_ns) return 0;
  if (d > ((__s64)1 << 40) || d < -((__s64)1 << 40)) return 0; /* 18 minutes: and the product does not overflow */
  local = l->local_ns + (__u64)(d + ((d * l->rate_q32) >> 32));
  age = (__s64)(now - local);
  if (age > CW_NIC_OLDEST_NS || age < -(__s64)l->slack_ns) return 0;
  return local;
}

#endif
