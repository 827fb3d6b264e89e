/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* cw_flow_edit: changes fields of one flow's record in place, for the agent (see maps/flow_edit.h). The maps are the
 * dataplane's pinned ones; the loader hands their descriptors over. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "maps/flow_edit.h"

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1);
  __type(key, struct cw_flow_key);
  __type(value, struct cw_flow);
} cw_flows SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, struct cw_flow_key);
  __type(value, struct cw_tx_flow);
} cw_tx_flows SEC(".maps");

#define NO_SUCH_FLOW 2 /* ENOENT */
#define STORE(field, value) (*(volatile __typeof__(field)*)&(field) = (value))

static __always_inline void edit_steering(struct cw_tx_flow* flow, const struct cw_flow_edit* edit) {
  if (edit->fields & CW_EDIT_NATIVE_SLOT) {
    STORE(flow->native_slot, edit->native_slot);
    /* A flow without a slot is moved by nobody but the agent, so that this does not race with a failover. */
    if (flow->slot == CW_SLOT_NONE && flow->port == 0) STORE(flow->slot, edit->native_slot);
  }
  if (edit->fields & CW_EDIT_FLAGS) STORE(flow->flags, (__u8)((flow->flags & ~edit->flags_clear) | edit->flags_set));
  if (edit->fields & CW_EDIT_WITHHELD) STORE(flow->withheld, edit->withheld);
  /* What a wish taken back saw of pauses is no pause for the next one. */
  if (edit->fields & (CW_EDIT_PLACE | CW_EDIT_WANT)) STORE(flow->last_tx_ns, 0);
  if (edit->fields & CW_EDIT_PLACE) {
    STORE(flow->want_slot, CW_SLOT_NONE);
    STORE(flow->port, edit->port);
    STORE(flow->slot, edit->slot);
  }
  if (edit->fields & CW_EDIT_WANT) {
    STORE(flow->want_port, edit->want_port);
    STORE(flow->want_force, edit->want_force);
    STORE(flow->want_slot, edit->want_slot);
  }
}

SEC("syscall")
int cw_flow_edit(struct cw_flow_edit* edit) {
  struct cw_flow_key key = edit->key;
  if (edit->fields & CW_EDIT_RECEIVED) {
    struct cw_flow* flow = bpf_map_lookup_elem(&cw_flows, &key);
    if (!flow) return NO_SUCH_FLOW;
    if (edit->fields & CW_EDIT_PEER_QPN) STORE(flow->peer_qpn, edit->peer_qpn);
    return 0;
  }
  struct cw_tx_flow* flow = bpf_map_lookup_elem(&cw_tx_flows, &key);
  if (!flow) return NO_SUCH_FLOW;
  if (edit->fields & CW_EDIT_PEER_QPN) STORE(flow->flow.peer_qpn, edit->peer_qpn);
  edit_steering(flow, edit);
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
