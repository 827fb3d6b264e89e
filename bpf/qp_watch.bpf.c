/* SPDX-License-Identifier: GPL-2.0-only */
/* cw_qp_modify, cw_qp_destroy: the moment at which a queue pair is connected or goes, for the agent, with the peer that
 * RDMA netlink's list does not have. At ib_modify_qp_with_udata and ib_destroy_qp_user, which ib_core exports: all
 * users' queue pairs of all drivers pass there, in Linux 6.1 as in 6.12.
 *
 * kprobes, not fentry: who attaches to a module's function by BTF needs that BTF's number, which the kernel gives to
 * CAP_SYS_ADMIN only; the agent has not got it. Offsets come from the file of the module's BTF, which all may read.
 * They only look, and a call that fails afterwards is put right by the list. */
#include <linux/bpf.h>
#include <linux/ptrace.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "maps/qp_watch.h"

#define IB_QP_STATE (1 << 0)
#define IB_QP_AV (1 << 7)
#define IB_QP_DEST_QPN (1 << 20)
#define IB_QPS_RTR 2
#define IB_QPS_RTS 3
#define IB_QPT_RC 2
#define IB_QPT_UC 3

const volatile struct cw_qp_layout cw_layout = {};

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 256 * 1024);
} cw_qp_ring SEC(".maps");

static __always_inline __u32 read_u32(const void* from, __u32 offset) {
  __u32 value = 0;
  bpf_probe_read_kernel(&value, sizeof(value), (const char*)from + offset);
  return value;
}

static __always_inline int connected_type(const void* qp) {
  const __u32 type = read_u32(qp, cw_layout.qp_type);
  return type == IB_QPT_RC || type == IB_QPT_UC;
}

/* A full ring loses the event: the list knows the queue pair within seconds. */
static __always_inline struct cw_ev_qp* begin(const void* qp, __u32 type) {
  struct cw_ev_qp* event = bpf_ringbuf_reserve(&cw_qp_ring, sizeof(*event), 0);
  if (!event) return 0;
  __builtin_memset(event, 0, sizeof(*event));
  const void* device = 0;
  bpf_probe_read_kernel(&device, sizeof(device), (const char*)qp + cw_layout.qp_device);
  bpf_probe_read_kernel_str(event->device, sizeof(event->device), (const char*)device + cw_layout.device_name);
  event->type = type;
  event->qpn = read_u32(qp, cw_layout.qp_num);
  event->ns = bpf_ktime_get_ns();
  return event;
}

SEC("kprobe/ib_modify_qp_with_udata")
int cw_qp_modify(struct pt_regs* ctx) {
  const void* qp = (const void*)PT_REGS_PARM1(ctx);
  const void* attr = (const void*)PT_REGS_PARM2(ctx);
  const __u32 mask = (__u32)PT_REGS_PARM3(ctx);
  const int by_user = PT_REGS_PARM4(ctx) != 0; /* struct ib_udata */
  if (!(mask & IB_QP_STATE) || !connected_type(qp)) return 0;
  const __u32 state = read_u32(attr, cw_layout.attr_state);
  if (state != IB_QPS_RTR && state != IB_QPS_RTS) return 0;
  struct cw_ev_qp* event = begin(qp, state == IB_QPS_RTR ? CW_QP_CONNECTS : CW_QP_SENDS);
  if (!event) return 0;
  if (mask & IB_QP_DEST_QPN) event->remote_qpn = read_u32(attr, cw_layout.attr_dest_qpn);
  if (mask & IB_QP_AV) {
    bpf_probe_read_kernel(event->remote, sizeof(event->remote), (const char*)attr + cw_layout.attr_dgid);
    event->flow_label = read_u32(attr, cw_layout.attr_label);
    event->has_av = 1;
  }
  if (by_user) {
    event->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(event->comm, sizeof(event->comm));
  }
  bpf_ringbuf_submit(event, 0);
  return 0;
}

SEC("kprobe/ib_destroy_qp_user")
int cw_qp_destroy(struct pt_regs* ctx) {
  const void* qp = (const void*)PT_REGS_PARM1(ctx);
  if (!connected_type(qp)) return 0;
  struct cw_ev_qp* event = begin(qp, CW_QP_ENDS);
  if (event) bpf_ringbuf_submit(event, 0);
  return 0;
}

char LICENSE[] SEC("license") = "GPL";
