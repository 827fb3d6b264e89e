/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What the lab's switch programs and the lab's fabric (userspace/lab) share. One set of maps per lab.
 *
 * Ports are known by their interface index, which the fabric chooses when it creates them; so the programs need no
 * lookup to know their link. Link (leaf, spine) has number k = leaf * LAB_MAX_SPINES + spine:
 *   leaf's end  LAB_IFINDEX_BASE + 2k      spine's end  LAB_IFINDEX_BASE + 2k + 1
 *   direction   2k: leaf -> spine (up)     2k + 1: spine -> leaf (down)
 * Host port p (virtual machines' taps included): LAB_IFINDEX_BASE + LAB_SPINE_DIRS + p;
 *   direction   LAB_SPINE_DIRS + 2p: host -> leaf (up)     LAB_SPINE_DIRS + 2p + 1: leaf -> host (down)
 */
#ifndef CW_BPF_LAB_SWITCH_ABI_H
#define CW_BPF_LAB_SWITCH_ABI_H

#include <linux/types.h>

#define LAB_MAX_LEAVES 4
#define LAB_MAX_SPINES 8
#define LAB_MAX_HOST_PORTS 32
#define LAB_SPINE_DIRS (2 * LAB_MAX_LEAVES * LAB_MAX_SPINES)
#define LAB_MAX_DIRS (LAB_SPINE_DIRS + 2 * LAB_MAX_HOST_PORTS)
#define LAB_IFINDEX_BASE 1000
#define LAB_MAX_FLOWS 65536

/* A fault is one 64-bit word, so that it changes at once: drop threshold | match << 32 | flags << 40. */
#define LAB_FAULT_ALWAYS 1000000u /* drops per million */
#define LAB_FAULT_PAUSED (1ull << 40)
#define LAB_FAULT_CORRUPT (1ull << 41) /* the share is not dropped: one bit of each packet is flipped */
enum lab_match { LAB_MATCH_ALL = 0, LAB_MATCH_ROCE_DATA = 1, LAB_MATCH_PROBES = 2 };

#define LAB_PROBE_OPCODE 0xE0 /* BTH opcodes from here on are manufacturer specific: the product's probes */

#define LAB_MAX_LONGER_NS 100000u

/* What a leaf chooses the spine by, for packets that came in by this host port (a host's direction towards the leaf).
 */
enum lab_hash {
  LAB_HASH_PORTS = 0,     /* the kernel's own: addresses and UDP ports */
  LAB_HASH_ADDRESSES = 1, /* no entropy in ports */
  LAB_HASH_TTL = 2,       /* ports and the TTL */
  LAB_HASH_SPRAY = 3,     /* each packet by chance */
  LAB_HASH_QPN = 4,       /* ports and the destination QPN */
  LAB_HASH_FLOWLETS =
      5, /* not a hash: a flow that paused goes on over the uplink with the least queued and sent lately */
};
/* lab_link_config.hash: the mode in 8 bits; for flowlets the leaf, the number of spines (all of them up), and the pause
 * in ns that a flowlet begins after. */
#define LAB_HASH_LEAF_SHIFT 8
#define LAB_HASH_SPINES_SHIFT 16
#define LAB_HASH_GAP_SHIFT 32
#define LAB_RECENT_NS \
  5000000u /* what was sent so long ago counts for nothing, what was sent half as long ago for half */

/* The lossless class of RoCE: DSCP 26, which the lab's queue pairs have. The other is the skb priority of all the rest:
 * as the handle of the class that HTB puts them in. */
#define LAB_ROCE_DSCP 26
#define LAB_OTHER_CLASS 0x10020

/* Fixed point of lab_link_config.vq_rate: bytes per nanosecond << LAB_VQ_SHIFT. */
#define LAB_VQ_SHIFT 20

struct lab_link_config { /* BPF_F_MMAPABLE array, by direction */
  __u64 fault;
  __u64 vq_rate; /* drain rate of the virtual queue; 0: never mark */
  __u64 vq_min_bytes;
  __u64 vq_max_bytes;
  __u64 vq_p_max;  /* probability of a mark at vq_max_bytes, times 2^32 */
  __u64 rate_bps;  /* the shaper's rate, for userspace only; 0: unshaped */
  __u64 hash;      /* enum lab_hash, and flowlets' settings */
  __u64 longer_ns; /* by which the wire is longer than it is: the processor waits */
};

struct lab_link_counters { /* BPF_F_MMAPABLE array, by direction; atomic adds */
  __u64 offered_packets;
  __u64 offered_bytes;
  __u64 carried_packets;
  __u64 carried_bytes;
  __u64 fault_drops; /* or damaged: LAB_FAULT_CORRUPT */
  __u64 fault_drop_bytes;
  __u64 ce_marks;
  __u64 probe_packets;
};

struct lab_flow_key {
  __u32 direction;
  __u32 saddr; /* network order, as in the packet */
  __u32 daddr;
  __u32 dqpn : 24;
  __u32 probe : 8;
};

struct lab_flow_counters {
  __u64 packets;
  __u64 bytes;
  __u64 fault_drops;
  __u64 last_ns;
  __u64 last_sport; /* host order */
  __u64 last_dscp;
};

struct lab_totals { /* BPF_F_MMAPABLE array of one */
  __u64 uncounted_flow_packets;
};

#ifdef __cplusplus
#define LAB_ASSERT static_assert
#else
#define LAB_ASSERT _Static_assert
#endif
LAB_ASSERT(sizeof(struct lab_link_config) == 64, "stride of an mmapable array");
LAB_ASSERT(sizeof(struct lab_link_counters) == 64, "stride of an mmapable array");
LAB_ASSERT(sizeof(struct lab_flow_key) == 16, "no padding in a hash key");
LAB_ASSERT(sizeof(struct lab_flow_counters) == 48, "no padding");

#endif
