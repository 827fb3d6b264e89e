/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* What the agent may change in a live flow's record, as the argument of the program cw_flow_edit. Writing a hash value
 * from userspace replaces it whole: counters would be lost and a failover between read and write undone. The program
 * stores single fields in place instead. */
#ifndef CW_MAPS_FLOW_EDIT_H
#define CW_MAPS_FLOW_EDIT_H

#include "maps/abi.h"

enum cw_flow_edit_fields {
  CW_EDIT_WANT = 1,        /* pending move: want_port, want_force, then want_slot, which arms it */
  CW_EDIT_PLACE = 2,       /* at once: slot and port; a pending move is dropped */
  CW_EDIT_NATIVE_SLOT = 4, /* native_slot; slot too while it is CW_SLOT_NONE on the native port */
  CW_EDIT_FLAGS = 8,       /* flags = (flags & ~flags_clear) | flags_set */
  CW_EDIT_PEER_QPN = 16,   /* flow.peer_qpn */
  CW_EDIT_RECEIVED = 32,   /* the record is in cw_flows (else cw_tx_flows): only CW_EDIT_PEER_QPN applies */
  CW_EDIT_WITHHELD = 64,   /* withheld */
};

struct cw_flow_edit {
  struct cw_flow_key key;
  __u32 fields; /* enum cw_flow_edit_fields */
  __u32 peer_qpn;
  __u16 want_port; /* 0 = native */
  __u16 port;      /* 0 = native */
  __u8 want_slot;  /* CW_SLOT_NONE = take the wish back */
  __u8 want_force;
  __u8 slot;
  __u8 native_slot;
  __u8 flags_set;
  __u8 flags_clear;
  __u8 withheld;
  __u8 reserved;
};
CW_ASSERT_SIZE(struct cw_flow_edit, 56);

#endif
