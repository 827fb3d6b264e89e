/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What bpf/qp_watch.bpf.c and the agent share: where the fields are that the program reads, and what it tells.
 * Not pinned: a program and its reader are of one agent. */
#ifndef CW_MAPS_QP_WATCH_H
#define CW_MAPS_QP_WATCH_H
#include <linux/types.h>

/* Offsets in bytes, from the BTF of the kernel's module ib_core. */
struct cw_qp_layout {
  __u32 qp_device;     /* struct ib_qp: pointer to struct ib_device */
  __u32 qp_num;        /* … u32 */
  __u32 qp_type;       /* … enum ib_qp_type */
  __u32 device_name;   /* struct ib_device: char[64] */
  __u32 attr_state;    /* struct ib_qp_attr: enum ib_qp_state */
  __u32 attr_dest_qpn; /* … u32 */
  __u32 attr_dgid;     /* … ah_attr.grh.dgid, 16 bytes in network order */
  __u32 attr_label;    /* … ah_attr.grh.flow_label, u32 */
};

#define CW_QP_DEVICE_LEN 64 /* IB_DEVICE_NAME_MAX */

enum cw_qp_event_type {
  CW_QP_CONNECTS = 1, /* goes to RTR: remote_qpn, remote and label are its peer's */
  CW_QP_SENDS = 2,    /* goes to RTS */
  CW_QP_ENDS = 3,     /* is destroyed */
};

struct cw_ev_qp {
  __u32 type; /* enum cw_qp_event_type */
  __u32 qpn;
  __u32 remote_qpn;
  __u32 flow_label;
  __u8 remote[16];
  __u32 pid;    /* of the process; 0: the kernel's own */
  __u32 has_av; /* remote and flow_label are set */
  __u64 ns;     /* monotonic */
  char comm[16];
  char device[CW_QP_DEVICE_LEN];
};
#ifdef __cplusplus
static_assert(sizeof(struct cw_ev_qp) == 128, "shared with BPF");
#else
_Static_assert(sizeof(struct cw_ev_qp) == 128, "shared with userspace");
#endif

#endif
