/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Every name under which something is pinned. Pins live in CW_PIN_ROOT/INSTANCE; the root carries the ABI version. */
#ifndef CW_MAPS_NAMES_H
#define CW_MAPS_NAMES_H

#define CW_BPFFS "/sys/fs/bpf"
#define CW_PIN_ROOT "/sys/fs/bpf/cwfabric/v1"

#define CW_MAP_CTL "cw_ctl"
#define CW_MAP_FLOWS "cw_flows"           /* LRU_HASH: received flows, and sent ones to unknown peers */
#define CW_MAP_TX_FLOWS "cw_tx_flows"     /* HASH: sent flows to peers, with their steering */
#define CW_MAP_PAIR_INDEX "cw_pair_index" /* HASH: struct cw_pair_key -> __u32 index */
#define CW_MAP_PAIRS "cw_pairs"           /* ARRAY */
#define CW_MAP_PROBE_TX "cw_probe_tx"     /* ARRAY */
#define CW_MAP_KEYS "cw_keys"             /* ARRAY */
#define CW_MAP_CARRY_OUT "cw_carry_out"   /* ARRAY, same index as cw_pairs: NIC failover, sending */
#define CW_MAP_CARRY_IN "cw_carry_in"     /* HASH: struct cw_carry_key -> struct cw_carry_in: NIC failover, receiving */
#define CW_MAP_COUNTERS "cw_counters"     /* PERCPU_ARRAY[1] */
#define CW_MAP_PROBE_RING "cw_probe_ring" /* RINGBUF */
#define CW_MAP_EVENT_RING "cw_event_ring" /* RINGBUF */
#define CW_MAP_MSG_RING "cw_msg_ring"     /* RINGBUF */
#define CW_MAP_PRESENCE "cw_presence"     /* PERF_EVENT_ARRAY[1]: an entry that lasts as long as the agent */
#define CW_MAP_FLEET_CLOCK \
  "cw_fleet_clock" /* ARRAY[1], struct cw_fleet_clock (clock_abi.h), for other people's programs */
#define CW_MAP_LOCAL_CLOCK "cw_local_clock" /* ARRAY[1], struct cw_local_clock (local_clock.h) */
#define CW_MAP_NIC_LINES "cw_nic_lines"     /* HASH: ifindex -> struct cw_nic_line (nic_line.h) */
#define CW_MAP_LAB_NIC "cw_lab_nic"         /* ARRAY[1], lab only: what a simulated NIC's clock is off by */
#define CW_MAP_LAB_CLOCK "cw_lab_clock"     /* ARRAY[1], lab only */

#define CW_MAP_RECORD "cw_maps" /* ARRAY[1], text and BTF: which maps belong together, and their records' layouts */
#define CW_PIN_FORMER "former_" /* former_ID_NAME: a replaced map or program, until it is attached nowhere */

#define CW_MAP_RODATA "cw_rodata" /* the programs' constants: opening a map by its number would take CAP_SYS_ADMIN */

#define CW_PROG_XDP "cw_xdp_ingress"
#define CW_PROG_TC "cw_tc_egress"
#define CW_PROG_TC_IN "cw_tc_ingress" /* attached where NIC failover is on */
/* Pinned per interface: xdp_IFINDEX (bpf_link). The tc program is attached with the handle and priority below. */
#define CW_PIN_XDP_LINK_FMT "xdp_%u"
/* tcx, from Linux 6.6; before it there is no link but a filter of clsact, with the handle and priority below. */
#define CW_PIN_TCX_EGRESS_FMT "tcx_egress_%u"
#define CW_PIN_TCX_INGRESS_FMT "tcx_ingress_%u"
#define CW_TC_HANDLE 0x6377 /* "cw" */
#define CW_TC_PRIORITY 49152

#endif
