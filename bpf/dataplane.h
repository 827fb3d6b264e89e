/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The maps and knobs of the dataplane, and the few helpers that both programs use. BPF only. */
#ifndef CW_BPF_DATAPLANE_H
#define CW_BPF_DATAPLANE_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bpf/clock.h"
#include "bpf/counters.h"
#include "bpf/icrc.h"
#include "bpf/liveness.h"
#include "bpf/psn.h"
#include "maps/local_clock.h"
#include "maps/names.h"
#include "maps/nic_line.h"

/* Knobs, set by the loader before loading. */

/* The lab's hidden clock error is added to every time that is read. Needs the map cw_lab_clock; false in production,
 * where that map does not exist and the code that would use it is dead. */
const volatile _Bool cw_lab_clock_on = 0;
/* Does this program have the NIC's stamps? Its variant for one NIC does (cwfabric_nic.bpf.c), and the lab's with the
 * map cw_lab_nic, which simulates such a NIC; elsewhere the code is dead. */
#ifdef CW_NIC_STAMPS
#define cw_nic_stamps_on 1
#else
const volatile _Bool cw_lab_nic_on = 0;
#define cw_nic_stamps_on cw_lab_nic_on
#endif
/* May packets be carried by another pair of NICs (bpf/carry.h)? Else that code is dead, and costs egress nothing. */
const volatile _Bool cw_nic_failover_on = 0;
/* x^(8n + 32) modulo the ICRC's polynomial, filled by cw_icrc_pow_fill(); while zero, nothing is rewritten. */
const volatile __u32 cw_icrc_pow[CW_ICRC_POWS] = {0};

/* Sizes are defaults that the loader may change. */

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_ctl);
} cw_ctl SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct cw_flow_key);
  __type(value, struct cw_flow);
} cw_flows SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, struct cw_flow_key);
  __type(value, struct cw_tx_flow);
} cw_tx_flows SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 2048);
  __type(key, struct cw_pair_key);
  __type(value, __u32);
} cw_pair_index SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct cw_pair);
} cw_pairs SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct cw_probe_tx);
} cw_probe_tx SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct cw_pair_keys);
} cw_keys SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct cw_carry_out);
} cw_carry_out SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1024);
  __type(key, struct cw_carry_key);
  __type(value, struct cw_carry_in);
} cw_carry_in SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_counters);
} cw_counters SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} cw_probe_ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 18);
} cw_event_ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} cw_msg_ring SEC(".maps");

/* What the agent puts here the kernel takes away when the agent ends, however it ends. */
struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(__u32));
} cw_presence SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_local_clock);
} cw_local_clock SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_lab_clock);
} cw_lab_clock SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 64);
  __type(key, __u32);
  __type(value, struct cw_nic_line);
} cw_nic_lines SEC(".maps");

/* The NIC's stamp of the packet at hand: the stacks have no room for it. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} cw_nic_stamp SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct cw_lab_clock);
} cw_lab_nic SEC(".maps");

static __always_inline void cw_count_here(__u32 counter) {
  __u32 zero = 0;
  __u64* counters = bpf_map_lookup_elem(&cw_counters, &zero);
  if (counters && counter < CW_COUNT_END) counters[counter]++;
}

static __noinline int cw_count(__u32 counter) {
  cw_count_here(counter);
  return 0;
}

/* Not static: old verifiers then look at it once, and not once more for each way to each call. That it is looked at
 * even where nothing calls it is why it asks for itself: without the lab there is no such map. */
__noinline __u64 cw_lab_time(__u64 true_ns) {
  __u32 zero = 0;
  if (!cw_lab_clock_on) return true_ns;
  struct cw_lab_clock* c = bpf_map_lookup_elem(&cw_lab_clock, &zero);
  return c ? cw_lab_clock_at(c, true_ns) : true_ns;
}

static __always_inline __u64 cw_local_time_here(__u64 t) {
  __u32 zero = 0;
  struct cw_local_clock* c = bpf_map_lookup_elem(&cw_local_clock, &zero);
  struct cw_local_line line;
  if (!c) return t;
  cw_local_get(c, &line);
  return cw_local_at(&line, t);
}

static __noinline __u64 cw_local_time(__u64 t) { return cw_local_time_here(t); }

static __always_inline __u64 cw_with_lab_error(__u64 t, __u64 local) {
  return cw_lab_clock_on ? local + (cw_lab_time(t) - t) : local;
}

/* Nanoseconds of the local clock. */
static __always_inline __u64 cw_now(void) {
  __u64 t = bpf_ktime_get_ns();
  return cw_with_lab_error(t, cw_local_time(t));
}

/* The same for what each packet may come to: calls cost some ns each, since returns are guarded against speculation. */
static __always_inline __u64 cw_now_here(void) {
  __u64 t = bpf_ktime_get_ns();
  return cw_with_lab_error(t, cw_local_time_here(t));
}

static __always_inline struct cw_ctl* cw_get_ctl(void) {
  __u32 zero = 0;
  return bpf_map_lookup_elem(&cw_ctl, &zero);
}

static __always_inline struct cw_pair* cw_get_pair(__u32 index) { return bpf_map_lookup_elem(&cw_pairs, &index); }

/* A slot by its number, which is below CW_MAX_SLOTS or not used. */
static __always_inline struct cw_slot* cw_get_slot(struct cw_pair* pair, __u32 s) {
  CW_OPAQUE(s);
  return &pair->slot[s & (CW_MAX_SLOTS - 1)];
}

/* Index of the configured pair of addresses, CW_PAIR_NONE if there is none. */
static __always_inline __u32 cw_find_pair(const struct cw_pair_key* key) {
  __u32* index = bpf_map_lookup_elem(&cw_pair_index, key);
  return index ? *index : CW_PAIR_NONE;
}

static const struct cw_flow cw_new_flow = {0};

/* Makes the record of a flow in the LRU. */
static __noinline struct cw_flow* cw_make_flow(const struct cw_flow_key* key) {
  struct cw_flow* f = 0;
  bpf_map_update_elem(&cw_flows, key, &cw_new_flow, BPF_NOEXIST); /* another CPU may have been faster: look again */
  f = bpf_map_lookup_elem(&cw_flows, key);
  if (!f)
    cw_count(CW_COUNT_flow_insert_failed);
  else if (!f->first_seen_jiffies)
    f->first_seen_jiffies = bpf_jiffies64();
  return f;
}

/* What a sample says beside the packet's own fields, in one register. */
#define CW_SAMPLE_DUPLICATE 1u
#define CW_SAMPLE_TX 2u
#define CW_SAMPLE_SLOT(slot) ((__u32)(slot) << 8)
#define CW_SAMPLE_PAIR(pair) ((__u32)(pair) << 16)

/* One half of a sample. Consumers poll: no wake-up. */
static __always_inline int cw_emit_sample(const struct cw_packet* p, __u32 what, __u16 port) {
  struct cw_ev_sample* ev = bpf_ringbuf_reserve(&cw_probe_ring, sizeof(*ev), 0);
  if (!ev) return cw_count(CW_COUNT_probe_ring_full);
  ev->type = CW_EV_SAMPLE;
  ev->is_tx = !!(what & CW_SAMPLE_TX);
  ev->is_resp = !!(p->op & CW_OP_RESP);
  ev->duplicate = what & CW_SAMPLE_DUPLICATE;
  ev->slot = what >> 8;
  ev->key = p->key;
  ev->psn = p->psn;
  ev->ns = cw_now_here();
  ev->pair = what >> 16;
  ev->port = port;
  ev->reserved = 0;
  bpf_ringbuf_submit(ev, BPF_RB_NO_WAKEUP);
  return 0;
}

#endif
