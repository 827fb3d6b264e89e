/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* The ABI between the BPF programs and userspace: every record of every pinned map, once, for both compilers.
 *
 * Shapes: addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d (the form of a GID); QPNs, PSNs, ports and
 * rounds are in host order; times are nanoseconds of the local clock (cw_now() in BPF, cw::Clock in userspace) unless a
 * name says jiffies. A layout change needs a new CW_ABI_VERSION; upgrades carry fields over by their names.
 * Thread rule: fields have one writer each, named below; counters of a flow are plain adds (a flow stays on one queue).
 */
#ifndef CW_MAPS_ABI_H
#define CW_MAPS_ABI_H

#include <linux/types.h>

#define CW_ABI_VERSION 7

#define CW_MAX_SLOTS 16     /* path slots of a pair of NICs */
#define CW_ROUNDS 8         /* rounds that a reception bitmap covers */
#define CW_TX_ROUNDS 32     /* rounds for which a request may be under way: a queue may be longer than the bitmap */
#define CW_SLOT_NONE 0xff   /* no slot: the path is not probed */
#define CW_PAIR_NONE 0xffff /* no pair: the peer is not configured */
#define CW_MSG_MAX 1100     /* body bytes of a message datagram */

#ifdef __cplusplus
#define CW_ASSERT_SIZE(type, size) static_assert(sizeof(type) == (size), "ABI size of " #type)
#define CW_ASSERT_OFFSET(type, field, off) \
  static_assert(__builtin_offsetof(type, field) == (off), "ABI offset of " #type "." #field)
#else
#define CW_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), "ABI size of " #type)
#define CW_ASSERT_OFFSET(type, field, off) \
  _Static_assert(__builtin_offsetof(type, field) == (off), "ABI offset of " #type "." #field)
#endif

/* ---- control (cw_ctl: ARRAY[1], mmapable; written by the agent, read by both programs) ---- */
/* What may be decided and done, each by itself; userspace/model/allowed.h says what they mean. */
enum cw_capability {
  CW_CAP_FAILOVER = 0, /* kernel */
  CW_CAP_LOSS = 1,
  CW_CAP_TAILS = 2,
  CW_CAP_BALANCE = 3,
  CW_CAP_PLACE = 4, /* kernel */
  CW_CAP_NIC = 5,   /* kernel, in bpf/carry.h */
  CW_CAPS = 6,
};
#define CW_CAPS_ALL ((1u << CW_CAPS) - 1)
/* Bits of cw_ctl.mode: the mode's number in bits 0-1, for people; what is decided from bit 8 on; what is done from bit
 * 16 on. One word, so that 0 ends everything with one store. */
#define CW_DECIDES_SHIFT 8
#define CW_ACTS_SHIFT 16
#define CW_DECIDES(cap) (1u << (CW_DECIDES_SHIFT + (cap)))
#define CW_ACTS(cap) (1u << (CW_ACTS_SHIFT + (cap)))
#define CW_ACTS_ANY (CW_CAPS_ALL << CW_ACTS_SHIFT) /* packets may be rewritten; operators' steering applies */
/* What is left of a mode where these capabilities (bits of enum cw_capability) do not act; they are still decided. */
#define CW_LESS(mode, withheld) ((mode) & ~(((withheld)&CW_CAPS_ALL) << CW_ACTS_SHIFT))

enum cw_mode {
  CW_MODE_OFF = 0, /* nothing is rewritten: every flow on its native port */
  /* verdicts are made and logged, nothing is rewritten */
  CW_MODE_OBSERVE = 1 | CW_CAPS_ALL << CW_DECIDES_SHIFT,
  /* flows leave bad paths; operators' steering applies */
  CW_MODE_PROTECT = 2 | CW_CAPS_ALL << CW_DECIDES_SHIFT | (CW_ACTS_ANY & ~CW_ACTS(CW_CAP_BALANCE)),
  /* and userspace moves flows for balance */
  CW_MODE_OPTIMIZE = 3 | CW_CAPS_ALL << CW_DECIDES_SHIFT | CW_ACTS_ANY,
};

struct cw_ctl {
  __u32 abi_version;
  __u32 mode;            /* enum cw_mode, or single bits of it; here in all releases, so that any cwctl switches off */
  __u32 sample_level_tx; /* sample when mix(PSN) has at least this many trailing zeros; 32 = never */
  __u32 sample_level_rx;
  __u64 lease_jiffies;  /* below 2^63; after this jiffy flows go back to their native ports; 0 = no lease */
  __u64 assign_jiffies; /* flows first seen after this jiffy are new: given a slot from the first packet */
  __u32 miss_limit;     /* rounds without an answer that make a slot dead (bpf/liveness.h) */
  __u32 revive_limit;   /* replies in a row that revive a dead slot */
  __u32 session;        /* of this agent start; in requests and replies */
  __u16 steer_full;     /* set by the kernel once an insert into cw_tx_flows failed */
  __u16 blind_jiffies;  /* a pair that sent no probe for longer is blind (bpf/blind.h); 0 = none ever is */
  __u64 move_gap_ns;    /* a pending move may happen at a pause of a flow longer than this */
  __u64 turn;           /* counts flows that were given a slot, so that they take the slots in turn; kernel */
  __u32
      patience_ns; /* the most that the liveness rule learns to wait for a path that often pauses; 0: it never learns */
  __u16 stuck_jiffies; /* as blind_jiffies while the agent's process is there; 0: nobody asks if it is */
  __u16 alone;         /* kernel: nobody looked after the pair that was blind last */
};
CW_ASSERT_SIZE(struct cw_ctl, 72);
CW_ASSERT_OFFSET(struct cw_ctl, mode, 4);

/* ---- flows ---- */
struct cw_flow_key {
  __u8 saddr[16];
  __u8 daddr[16];
  __u32 dqpn; /* destination QPN */
};
CW_ASSERT_SIZE(struct cw_flow_key, 36);

/* One 24-bit PSN sequence. Requests and responses to one QPN are two sequences. */
struct cw_psn_tracker {
  __u32 next; /* PSN expected next */
  __u32 seen; /* 0 = nothing seen yet, 1 = next is exact, 2 = next is a lower limit (READ of unknown MTU) */
  __u64 packets;
  __u64 gaps;       /* times that PSNs were skipped: loss or reordering before this point */
  __u64 missing;    /* PSNs skipped in all */
  __u64 duplicates; /* PSNs below next: retransmissions */
};
CW_ASSERT_SIZE(struct cw_psn_tracker, 40);

/* Counters of one direction of one queue pair. last_seen_jiffies: 64-bit jiffies. */
struct cw_flow {
  __u64 packets;
  __u64 bytes; /* IP packets, IP header included */
  __u64 first_seen_jiffies;
  __u64 last_seen_jiffies;
  struct cw_psn_tracker req;
  struct cw_psn_tracker resp;
  __u64 ce;         /* packets with ECN CE */
  __u64 cnp;        /* congestion notification packets */
  __u64 acks;       /* positive acknowledgements */
  __u64 nak_seq;    /* NAK, PSN sequence error */
  __u64 nak_other;  /* NAK, invalid request, access or operational error */
  __u64 rnr;        /* receiver not ready */
  __u32 mtu;        /* path MTU learned from First/Middle packets, 0 = unknown */
  __u32 peer_qpn;   /* destination QPN of the opposite direction, 0 = unknown; written by the agent (RegisterQp), for UD
                       by   the kernel: the sender's QPN */
  __u16 sport;      /* UDP source port last seen, before any rewrite */
  __u8 tos;         /* last seen */
  __u8 transport;   /* BTH transport: 0 RC, 1 UC, 3 UD, ... */
  __u32 dry_deaths; /* sent flows in observe: the slot's deaths when a dry move was last reported; kernel */
};
CW_ASSERT_SIZE(struct cw_flow, 176);

enum cw_steer_flags {
  CW_STEER_LOCKED = 1,      /* the agent does not move it; it still leaves a dead path */
  CW_STEER_HARD_LOCKED = 2, /* never moved */
  CW_STEER_MANUAL = 4,      /* placed by an operator */
  CW_STEER_NATIVE_NEW = 8,  /* first seen while native slots were not known: the agent assigns native_slot */
};

enum cw_move_reason {
  CW_MOVE_NONE = 0,
  CW_MOVE_ASSIGN = 1, /* new flow put on a slot */
  CW_MOVE_DEAD = 2,   /* its path died */
  CW_MOVE_IDLE = 3,   /* pending move, nothing in flight */
  CW_MOVE_GAP = 4,    /* pending move, at a pause */
  CW_MOVE_FORCED = 5, /* pending move, one go-back-N accepted */
  CW_MOVE_LEASE = 6,  /* no agent has renewed its lease: back to the native port */
  CW_MOVE_HELD = 7,   /* pending move, packets held back until what is under way has arrived */
  CW_MOVE_BLIND = 8,  /* nobody probes, and it was not answered (bpf/blind.h) */
};

/* A transmitted flow to a configured peer (cw_tx_flows: HASH, never LRU, so an eviction cannot change a verdict).
 * Egress does one lookup: counters and steering are one record.
 * Kernel writes all but: slot/port/native_slot/flags/want_* which the agent may set too (maps/flow_edit.h), and
 * withheld, which it alone sets. */
struct cw_tx_flow {
  struct cw_flow flow;
  __u16 pair;       /* index into cw_pairs */
  __u8 slot;        /* slot whose path it takes now, CW_SLOT_NONE = unknown (native port not probed) */
  __u8 native_slot; /* slot that stands for the native port's path */
  __u16 port;       /* source port written, 0 = the native one */
  __u8 flags;       /* enum cw_steer_flags */
  __u8 reason;      /* enum cw_move_reason of the last move */
  __u8 want_slot;   /* pending move: slot, CW_SLOT_NONE = none */
  __u8 want_force;  /* pending move may be made at once */
  __u16 want_port;  /* 0 = native */
  __u32 moves;
  __u32 acked_psn;   /* next PSN that the peer has not acknowledged */
  __u8 acked_valid;  /* 1 once an acknowledgement was seen, 0 again when the queue pair began another life */
  __u8 withheld;     /* bit of each enum cw_capability that does not act for this flow, whatever the mode says; agent */
  __u16 nak_jiffies; /* lowest bits: last NAK of a PSN or for want of a receiver, sent or received by this side */
  __u32 move_psn;    /* first PSN sent on the present slot */
  __u32 mark_psn;    /* outstanding mark of data as witness: a PSN … */
  __u32 mark_round;  /* … and the probe round that it was sent in; 0 = none outstanding */
  __u8 mark_slot;    /* … and the slot */
  __u8 label[3];     /* IPv6: the flow label that its RDMA stack gives it, as on the wire */
  __u64 last_tx_ns;  /* read only while a move is pending */
  __u64 moved_jiffies; /* of the last move */
  __u64 patch;         /* last change of the ICRC, and for what (bpf/icrc.h); one word, so never half of it */
  __u64 hold_ns;       /* no packet departs before this CLOCK_MONOTONIC time; 0 = at once */
  __u16 heard_jiffies; /* lowest bits: last answered, or began to wait for an answer */
  __u16 heard_gap;     /* 1/64 jiffies: slowly forgetting maximum of the time between answers */
  __u16 doubt_jiffies; /* lowest bits: when the present silence was first found too long */
  __u8 blind_moves;    /* in a row, without an acknowledgement between them */
  __u8 unanswered;     /* the peer sends again what had arrived (lowest bits 2: twice), so this side's answers die */
};
CW_ASSERT_SIZE(struct cw_tx_flow, 256);

/* ---- pairs of NICs and their path slots ---- */
struct cw_pair_key {
  __u8 local[16];
  __u8 remote[16];
};

enum cw_slot_state {
  CW_SLOT_UNUSED = 0,
  CW_SLOT_UP = 1,
  CW_SLOT_SUSPECT = 2, /* at least one miss, below the limit */
  CW_SLOT_DEAD = 3,
  CW_SLOT_NEW = 4, /* never answered yet */
};

enum cw_slot_flags {
  CW_SLOT_ASSIGNABLE = 1, /* new and failing-over flows may be put here */
  CW_SLOT_NATIVE = 2,     /* exists to probe the port that a flow chose itself */
};

struct cw_slot {
  __u16 port;           /* entropy: UDP source port; agent */
  __u8 state;           /* enum cw_slot_state; kernel (agent sets UNUSED/NEW) */
  __u8 flags;           /* enum cw_slot_flags; agent */
  __u32 progress_round; /* newest round proved delivered by a reception bitmap; kernel */
  __u32 acked_round;    /* newest round in which data sent here was acknowledged; kernel */
  __u32 revive;         /* replies in a row while dead; kernel */
  __u64 raw_ns;         /* newest T2-T1 (two clocks: only differences mean something) */
  __u64 heard_ns;       /* T2 of the newest reply that showed progress; peer's clock */
  __u64 acked_ns;       /* when data sent here was last acknowledged; our clock; 0 = never */
  __u64 changed_ns;     /* last change of state */
  __u32 jump_ns;        /* slowly forgetting maximum of how much longer a probe took than the one before */
  __u32 deaths;
  __u32 misses;     /* rounds missed at the last judgement */
  __u32 peer_round; /* newest round of the peer's own slot of this number that arrived here; kernel (XDP) */
};
CW_ASSERT_SIZE(struct cw_slot, 64);

struct cw_round_mask {
  __u32 round;
  __u32 mask; /* bit s: slot s */
};

/* cw_pairs: ARRAY. Array entries are never deleted: remote all-zero = unused. */
struct cw_pair {
  struct cw_pair_key key;
  __u32 live_mask;         /* slots in state UP or SUSPECT; kernel */
  __u32 assign_mask;       /* slots that flows may be put on; agent */
  __u32 interval_ns;       /* present probe interval; agent */
  __u32 cur_round;         /* newest round sent; kernel (tc egress) */
  __u32 floor_round;       /* rounds before it are not counted: the prober paused */
  __u32 peer_session;      /* session of the peer's requests; kernel */
  __u32 responder_session; /* session seen in the peer's replies; kernel */
  __u32 half_dead_rounds;  /* misses wanted when half of the slots or more lag together; agent (K x 5) */
  __u64 round_ns;          /* first T1 of cur_round */
  __u64 last_reply_ns;
  struct cw_round_mask sent[CW_ROUNDS]; /* what we sent, by round & 7; kernel (tc egress) */
  struct cw_round_mask rcvd[CW_ROUNDS]; /* what arrived from the peer, by round & 7; kernel (XDP) */
  __u32 peer_round;                     /* newest round received from the peer */
  __u32 tx_session;    /* session of our newest request; a new one may number its rounds afresh; kernel (tc egress) */
  __u32 lag_round;     /* newest round in which half of the live slots or more lagged; kernel */
  __u32 carried;       /* 1: data to this pair leaves by another one, see cw_carry_out; agent */
  __u32 peer_slots;    /* slots that the peer probes, as its newest request says; 0 = it does not say; kernel (XDP) */
  __u32 departs;       /* 1: every queue of the NIC keeps packets' departure times (fq); agent */
  __u64 round_jiffies; /* when cur_round began; kernel (tc egress). An agent that stops sets it ahead: bpf/blind.h */
  __u32 shunned;       /* lower half: slots that flows left lately for want of answers; upper: when the last one was, in
                        * 64 jiffies; kernel (tc egress) */
  __u32 withheld;      /* bit of each enum cw_capability that does not act for flows of this pair; agent */
  __u16 backup[CW_MAX_SLOTS]; /* [s]: slots to which flows of slot s go first when it dies; 0 = any; agent */
  struct cw_slot slot[CW_MAX_SLOTS];
  __u32 patience_ns[CW_MAX_SLOTS]; /* [s]: of the rule with silences of slot s, learned from those that ended; kernel */
};
CW_ASSERT_SIZE(struct cw_pair, 32 + 32 + 16 + 128 + 16 + 8 + 16 + 32 + 16 * 64 + 64);

/* T1 of requests under way (cw_probe_tx: ARRAY, same index as cw_pairs); written by tc egress. */
struct cw_probe_tx {
  __u64 t1[CW_MAX_SLOTS][CW_TX_ROUNDS];
  __u32 round[CW_MAX_SLOTS][CW_TX_ROUNDS];
};

/* Probe keys, SipHash-2-4 (cw_keys: ARRAY, same index). Derived per ordered pair of addresses, so that direction and
 * addresses are bound by the key itself. Two live keys each way; valid bit i = key i may be used. Agent writes. */
struct cw_pair_keys {
  __u64 tx[2][2]; /* what we send: requests, replies, messages */
  __u64 rx[2][2]; /* what the peer sends */
  __u32 valid;
  __u32 tx_id; /* key that we send with */
};

/* ---- NIC failover: packets of a pair whose NIC is out of reach, carried by another pair of the two hosts ---- */
/* A carried packet has the carrying pair's addresses, and a tag in the two upper bits of its destination QPN, by which
 * the receiver knows it; the receiver puts back what it was, so the ICRC is never touched. Such QPNs are not carried.
 */
#define CW_CARRY_TAG_SHIFT 22
#define CW_CARRY_TAGS 3 /* 1 to 3 */

/* How a pair's packets leave (cw_carry_out: ARRAY, same index as cw_pairs); agent. Valid while the pair is `carried`.
 */
struct cw_carry_out {
  struct cw_pair_key pair; /* that carries */
  __u32 ifindex;           /* of its local NIC */
  __u32 tag;
};
CW_ASSERT_SIZE(struct cw_carry_out, 40);

/* What an arriving packet was (cw_carry_in: HASH); agent. */
struct cw_carry_key {
  struct cw_pair_key pair; /* that carried it, seen from here: local is the packet's destination */
  __u32 tag;
};
CW_ASSERT_SIZE(struct cw_carry_key, 36);
struct cw_carry_in {
  struct cw_pair_key pair; /* that the packet is of */
  __u32 ifindex;           /* of its local NIC, which is given the packet */
  __u8 mac[6];             /* of that NIC */
  __u8 reserved[2];
};
CW_ASSERT_SIZE(struct cw_carry_in, 44);

/* ---- records in the rings ---- */
enum cw_event_type {
  CW_EV_PROBE = 1,  /* cw_probe_ring */
  CW_EV_SAMPLE = 2, /* cw_probe_ring */
  CW_EV_SLOT = 3,   /* cw_event_ring */
  CW_EV_MOVE = 4,   /* cw_event_ring */
  CW_EV_FLOW = 5,   /* cw_event_ring: a transmitted flow appeared */
  CW_EV_MSG = 6,    /* cw_msg_ring */
};

/* A probe's four times. t1, t4: our clock; t2, t3: the peer's. Arrivals as the NICs stamped them besides, 0 = none. */
struct cw_ev_probe {
  __u32 type;
  __u16 pair;
  __u8 slot;
  __u8 rslot; /* the peer's slot that the reply took, CW_SLOT_NONE = none */
  __u32 round;
  __u32 responder_session;
  __u64 t1, t2, t3, t4;
  __u64 t2_nic, t4_nic;
  __u16 arrived[8]; /* masks of the slots whose probes the peer had by then: of this round and those before */
  __u8 flags;       /* enum cw_probe_flags: how the request arrived */
  __u8 reserved[7];
};
CW_ASSERT_SIZE(struct cw_ev_probe, 88);

/* One half of a sampled data packet. */
struct cw_ev_sample {
  __u32 type;
  __u8 is_tx;
  __u8 is_resp;   /* PSN belongs to the response sequence */
  __u8 duplicate; /* not the first time that this PSN passed: voids the sample */
  __u8 slot;      /* tx: slot taken */
  struct cw_flow_key key;
  __u32 psn;
  __u64 ns;
  __u16 pair; /* tx: pair; rx: CW_PAIR_NONE */
  __u16 port; /* UDP source port on the wire */
  __u32 reserved;
};
CW_ASSERT_SIZE(struct cw_ev_sample, 64);

/* A slot changed its state: the verdict and its evidence. */
struct cw_ev_slot {
  __u32 type;
  __u16 pair;
  __u8 slot;
  __u8 from; /* enum cw_slot_state */
  __u8 to;
  __u8 witness; /* slot whose reply proved it */
  __u8 half;    /* half of the slots or more lagged: the longer limit was used */
  __u8 reserved;
  __u32 round; /* of the reply */
  __u32 progress_round;
  __u32 acked_round;
  __u32 misses;
  __u32 limit;
  __u32 silence_ns; /* since the last sign of life, by probe or by data */
  __u32 jump_ns;    /* of which so much may be a queue that grew */
  __u64 ns;
};
CW_ASSERT_SIZE(struct cw_ev_slot, 48);

struct cw_ev_move {
  __u32 type;
  struct cw_flow_key key;
  __u16 pair;
  __u8 from_slot;
  __u8 to_slot;
  __u16 from_port; /* 0 = native */
  __u16 to_port;
  __u32 psn;   /* first PSN on the new path */
  __u8 reason; /* enum cw_move_reason */
  __u8 dry;    /* 1 = it would have moved, and may not (at most one such record per flow and death) */
  __u16 reserved;
  __u64 ns;
};
CW_ASSERT_SIZE(struct cw_ev_move, 64);

/* A message datagram from a peer, header MAC already verified; the body's MAC is checked by the agent. */
struct cw_ev_msg {
  __u32 type;
  __u16 pair;
  __u16 len; /* bytes of packet[]: wire header, body, body MAC */
  __u64 ns;
  __u8 packet[80 + CW_MSG_MAX + 8];
};

/* ---- the lab's hidden clock (cw_lab_clock: ARRAY[1]; exists only where the lab's agent switched it on) ---- */
#define CW_LAB_SEGMENTS 64 /* a power of two */
struct cw_lab_clock {
  __s64 offset_ns; /* at start_ns[0] */
  __u32 segments;
  __u32 reserved;
  __u64 start_ns[CW_LAB_SEGMENTS]; /* true time (bpf_ktime_get_ns) at which a segment begins */
  __s64 drift_ppb[CW_LAB_SEGMENTS];
  __s64 base_ns[CW_LAB_SEGMENTS]; /* error at the segment's start */
};

/* ---- counters (cw_counters: PERCPU_ARRAY[1]) ---- */
/* X(name, what it counts). Every packet that is not handled passes untouched and is counted once here. */
#define CW_COUNTERS(X)                                                                      \
  X(rocev1_frames, "RoCEv1 frames (Ethertype 0x8915), passed")                              \
  X(vlan_too_deep, "frames with more than two VLAN tags, passed")                           \
  X(eth_truncated, "frames shorter than their Ethernet or VLAN header, passed")             \
  X(ip_truncated, "IP packets shorter than their header says, passed")                      \
  X(ip_options, "RoCEv2 packets with IPv4 options, passed")                                 \
  X(ip_fragment, "IP fragments of UDP, passed")                                             \
  X(ip6_extension, "RoCEv2 packets with IPv6 extension headers, passed")                    \
  X(udp_truncated, "UDP 4791 packets too short for a UDP header, passed")                   \
  X(udp_length_bad, "UDP 4791 packets whose UDP and IP length disagree, passed")            \
  X(bth_truncated, "UDP 4791 packets too short for BTH and ICRC, passed")                   \
  X(bth_version, "BTH version other than 0, passed")                                        \
  X(ext_truncated, "packets too short for their opcode's extended headers, passed")         \
  X(opcode_unknown, "opcodes that no tracker knows, passed")                                \
  X(gso_frames, "GSO frames at egress, passed unrewritten")                                 \
  X(flow_insert_failed, "flows not recorded: insert into cw_flows failed")                  \
  X(steer_full, "flows left native: cw_tx_flows is full")                                   \
  X(peer_unknown, "transmitted flows to addresses that are no configured peer")             \
  X(native_unprobed, "packets of flows whose native path has no slot")                      \
  X(no_live_slot, "packets that stayed on a dead path because no slot is live")             \
  X(rewrite_failed, "packets passed unrewritten because the store failed")                  \
  X(rewrite_too_long, "packets passed unrewritten: longer than the ICRC table")             \
  X(moves_lease, "flows back on their native ports because the agent's lease ran out")      \
  X(probe_malformed, "UDP 4791 with our opcode and QPN but wrong magic, version or length") \
  X(probe_unknown_peer, "probes from or to addresses that are no configured pair")          \
  X(probe_bad_mac, "probes whose MAC is wrong")                                             \
  X(probe_replayed, "requests of a round already received, or older than the window")       \
  X(probe_stale, "replies to no outstanding request")                                       \
  X(probe_bad_session, "replies for another session")                                       \
  X(probe_requests, "requests answered")                                                    \
  X(probe_replies, "replies accepted")                                                      \
  X(probe_sent, "requests sent")                                                            \
  X(peer_restarts, "new sessions of peers accepted")                                        \
  X(trace_arrived, "path-discovery packets that reached this host, consumed")               \
  X(messages, "message datagrams accepted")                                                 \
  X(message_ring_full, "message datagrams lost: ring full")                                 \
  X(probe_ring_full, "probe records and samples lost: ring full")                           \
  X(event_ring_full, "event records lost: ring full")                                       \
  X(slots_died, "slots declared dead")                                                      \
  X(slots_revived, "dead slots that answer again")                                          \
  X(moves_dead, "flows moved off a dead slot")                                              \
  X(moves_idle, "pending moves made with nothing in flight")                                \
  X(moves_gap, "pending moves made at a pause")                                             \
  X(moves_forced, "pending moves made at the price of one go-back-N")                       \
  X(flows_assigned, "new flows put on a slot")                                              \
  X(nic_stamps, "probes whose arrival the NIC stamped")                                     \
  X(nic_stamps_missing, "probes without a stamp of a NIC that should give one")             \
  X(nic_stamps_off, "probes whose stamp of the NIC cannot be right, or has no line yet")    \
  X(nic_carried, "packets of a NIC out of reach that left by another one")                  \
  X(nic_restored, "packets that arrived for a NIC out of reach by another one")             \
  X(nic_unknown, "carried packets that no entry tells the origin of, passed")               \
  X(moves_held, "pending moves made with packets held until those under way had arrived")   \
  X(moves_blind, "flows that went unanswered while nobody probed, moved to another slot")   \
  X(rewritten, "packets that left with another UDP source port than their own")

struct cw_counters {
#define CW_COUNTER_FIELD(name, text) __u64 name;
  CW_COUNTERS(CW_COUNTER_FIELD)
#undef CW_COUNTER_FIELD
};

#endif
