// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
//
// The programs on the ports of the lab's switches. Forwarding stays with the kernel's IP stack.
//   lab_ingress   tc ingress of every port: the end of the wire. Counts what arrived, then applies the link's fault.
//   lab_egress    tc egress of every port, before its queue: counts what is offered, marks CE from a virtual queue.
//                 On leaf -> host ports it also stands in for the wire, because the lab puts nothing into hosts.
//   lab_pass      XDP on the leaves' host ports: a host's XDP_TX needs native XDP on the other end of a veth pair.
#include "bpf/lab/switch_abi.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, LAB_MAX_DIRS);
  __type(key, __u32);
  __type(value, struct lab_link_config);
} lab_config SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, LAB_MAX_DIRS);
  __type(key, __u32);
  __type(value, struct lab_link_counters);
} lab_links SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct lab_totals);
} lab_sums SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, LAB_MAX_FLOWS);
  __type(key, struct lab_flow_key);
  __type(value, struct lab_flow_counters);
} lab_flows SEC(".maps");

// A virtual queue is written from any CPU that sends to the port. Maps with a lock cannot be mmapped: hence apart.
struct lab_virtual_queue {
  struct bpf_spin_lock lock;
  __u32 reserved;
  __u64 bytes;
  __u64 updated_ns;
  __u64 recent_bytes;  // sent lately, fading away
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, LAB_MAX_DIRS);
  __type(key, __u32);
  __type(value, struct lab_virtual_queue);
} lab_queues SEC(".maps");

struct lab_flowlet {
  __u64 last_ns;
  __u64 spine;
};

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, LAB_MAX_FLOWS);
  __type(key, struct lab_flow_key);
  __type(value, struct lab_flowlet);
} lab_flowlets SEC(".maps");

#define ROCE_PORT 4791
#define ECT_MASK 3

struct roce_bth {
  __u8 opcode;
  __u8 flags;
  __be16 pkey;
  __be32 dqpn;  // top byte: FECN, BECN, reserved
  __be32 psn;
};

struct lab_packet {
  __u32 saddr, daddr;
  __u32 dqpn;
  __u16 sport;
  __u8 opcode;
  __u8 l4_off;  // of the UDP header
  __u8 ecn;     // of any IP packet
  __u8 dscp;
  __u8 ttl;
  __u8 roce;  // the fields above are of a RoCEv2 packet
};

static __always_inline void parse_roce(struct __sk_buff* skb, __u32 l4_off, struct lab_packet* p) {
  struct {
    struct udphdr udp;
    struct roce_bth bth;
  } l4;

  if (bpf_skb_load_bytes(skb, l4_off, &l4, sizeof(l4)) || l4.udp.dest != bpf_htons(ROCE_PORT)) return;
  p->l4_off = l4_off;
  p->sport = bpf_ntohs(l4.udp.source);
  p->opcode = l4.bth.opcode;
  p->dqpn = bpf_ntohl(l4.bth.dqpn) & 0xffffff;
  p->roce = 1;
}

// Of the lab's IPv6 addresses, fd00::a.b.c.d, the last four bytes tell all.
static __always_inline void parse_ip6(struct __sk_buff* skb, struct lab_packet* p) {
  struct ipv6hdr ip;

  if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip))) return;
  p->ecn = ip.flow_lbl[0] >> 4 & ECT_MASK;
  p->dscp = (ip.priority << 2 | ip.flow_lbl[0] >> 6) & 0x3f;
  if (ip.nexthdr != IPPROTO_UDP) return;
  p->saddr = ip.saddr.in6_u.u6_addr32[3];
  p->daddr = ip.daddr.in6_u.u6_addr32[3];
  p->ttl = ip.hop_limit;
  parse_roce(skb, sizeof(struct ethhdr) + sizeof(ip), p);
}

// By copying out rather than by direct access: forwarded packets may keep their headers in fragments.
static __always_inline void parse(struct __sk_buff* skb, struct lab_packet* p) {
  struct {
    struct ethhdr eth;
    struct iphdr ip;
  } __attribute__((packed)) l3;

  __builtin_memset(p, 0, sizeof(*p));
  if (bpf_skb_load_bytes(skb, 0, &l3, sizeof(l3))) return;
  if (l3.eth.h_proto == bpf_htons(ETH_P_IPV6)) {
    parse_ip6(skb, p);
    return;
  }
  if (l3.eth.h_proto != bpf_htons(ETH_P_IP)) return;
  p->ecn = l3.ip.tos & ECT_MASK;
  p->dscp = l3.ip.tos >> 2;
  if (l3.ip.ihl != 5 || l3.ip.protocol != IPPROTO_UDP || (l3.ip.frag_off & bpf_htons(0x3fff))) return;
  p->saddr = l3.ip.saddr;
  p->daddr = l3.ip.daddr;
  p->ttl = l3.ip.ttl;
  parse_roce(skb, sizeof(l3), p);
}

static __always_inline int is_probe(const struct lab_packet* p) { return p->roce && p->opcode >= LAB_PROBE_OPCODE; }

static __always_inline int hit_by(__u64 fault, const struct lab_packet* p) {
  __u32 share = (__u32)fault;
  __u8 match = fault >> 32;

  if (!share) return 0;
  if (match == LAB_MATCH_ROCE_DATA && (!p->roce || is_probe(p))) return 0;
  if (match == LAB_MATCH_PROBES && !is_probe(p)) return 0;
  return share >= LAB_FAULT_ALWAYS || (((__u64)bpf_get_prandom_u32() * LAB_FAULT_ALWAYS) >> 32) < share;
}

static __always_inline void count_flow(struct __sk_buff* skb, __u32 dir, const struct lab_packet* p, int dropped) {
  struct lab_flow_key key = {
      .direction = dir, .saddr = p->saddr, .daddr = p->daddr, .dqpn = p->dqpn, .probe = is_probe(p)};
  struct lab_flow_counters* flow = bpf_map_lookup_elem(&lab_flows, &key);

  if (!flow) {
    struct lab_flow_counters none = {};
    bpf_map_update_elem(&lab_flows, &key, &none, BPF_NOEXIST);
    flow = bpf_map_lookup_elem(&lab_flows, &key);
  }
  if (!flow) {
    __u32 zero = 0;
    struct lab_totals* sums = bpf_map_lookup_elem(&lab_sums, &zero);
    if (sums) __sync_fetch_and_add(&sums->uncounted_flow_packets, 1);
    return;
  }
  __sync_fetch_and_add(&flow->packets, 1);
  __sync_fetch_and_add(&flow->bytes, skb->len);
  if (dropped) __sync_fetch_and_add(&flow->fault_drops, 1);
  flow->last_ns = bpf_ktime_get_ns();
  flow->last_sport = p->sport;
  flow->last_dscp = p->dscp;
}

// A bit that the switch's own memory lost: behind the headers that it forwards by, so that only the ICRC can tell.
static __always_inline void flip_a_bit(struct __sk_buff* skb, const struct lab_packet* p) {
  const __u32 first = p->l4_off + sizeof(struct udphdr) + sizeof(struct roce_bth);
  __u32 at, chance = bpf_get_prandom_u32();
  __u8 byte;

  if (skb->len <= first) return;
  at = first + (chance >> 3) % (skb->len - first);
  if (bpf_skb_load_bytes(skb, at, &byte, 1)) return;
  byte ^= 1 << (chance & 7);
  bpf_skb_store_bytes(skb, at, &byte, 1, 0);
}

static long has_arrived(__u32 turn, void* at_ns) { return bpf_ktime_get_ns() >= *(__u64*)at_ns; }

// A longer wire. Nothing else can hold a packet for microseconds here, so it is for few packets: probes.
static __always_inline void travel_on(__u64 longer_ns) {
  __u64 at_ns = bpf_ktime_get_ns() + (longer_ns < LAB_MAX_LONGER_NS ? longer_ns : LAB_MAX_LONGER_NS);

  bpf_loop(LAB_MAX_LONGER_NS / 8, has_arrived, &at_ns, 0);
}

// The wire: count, then lose or damage. Returns whether the packet is lost.
static __always_inline int cross_wire(struct __sk_buff* skb, __u32 dir, const struct lab_packet* p) {
  struct lab_link_config* config = bpf_map_lookup_elem(&lab_config, &dir);
  struct lab_link_counters* link = bpf_map_lookup_elem(&lab_links, &dir);
  __u64 fault;
  int hit, lost;

  if (!config || !link) return 0;
  fault = *(volatile __u64*)&config->fault;
  hit = hit_by(fault, p);
  lost = hit && !(fault & LAB_FAULT_CORRUPT);
  if (config->longer_ns && p->roce) travel_on(config->longer_ns);
  __sync_fetch_and_add(&link->carried_packets, 1);
  __sync_fetch_and_add(&link->carried_bytes, skb->len);
  if (is_probe(p)) __sync_fetch_and_add(&link->probe_packets, 1);
  if (p->roce) count_flow(skb, dir, p, lost);
  if (hit) {
    __sync_fetch_and_add(&link->fault_drops, 1);
    __sync_fetch_and_add(&link->fault_drop_bytes, skb->len);
  }
  if (hit && !lost && p->roce) flip_a_bit(skb, p);
  return lost;
}

static __always_inline void count_offered(struct __sk_buff* skb, struct lab_link_counters* link) {
  __sync_fetch_and_add(&link->offered_packets, 1);
  __sync_fetch_and_add(&link->offered_bytes, skb->len);
}

static __always_inline __u64 faded(__u64 recent_bytes, __u64 elapsed) {
  return elapsed < LAB_RECENT_NS ? recent_bytes - recent_bytes * elapsed / LAB_RECENT_NS : 0;
}

// Adds the packet to the direction's virtual queue and returns the queue's length in bytes, the packet included. The
// queue drains slower than the link, so marks come before the real queue grows.
static __always_inline __u64 virtual_queue(struct __sk_buff* skb, __u32 dir, const struct lab_link_config* config) {
  struct lab_virtual_queue* queue = bpf_map_lookup_elem(&lab_queues, &dir);
  __u64 now = bpf_ktime_get_ns(), limit = 2 * config->vq_max_bytes, rate = config->vq_rate, bytes, elapsed, drained;
  __u32 len = skb->len;

  if (!queue) return 0;
  bpf_spin_lock(&queue->lock);
  bytes = queue->bytes;
  if (now > queue->updated_ns) {  // another CPU may have come later with an earlier clock
    elapsed = now - queue->updated_ns;
    if (elapsed > 1000000000) elapsed = 1000000000;  // keeps the product within 64 bits up to 400 Gbit/s
    drained = (elapsed * rate) >> LAB_VQ_SHIFT;
    bytes = bytes > drained ? bytes - drained : 0;
    queue->recent_bytes = faded(queue->recent_bytes, elapsed);
    queue->updated_ns = now;
  }
  queue->recent_bytes += len;
  bytes += len;
  if (bytes > limit) bytes = limit;  // a sender that does not listen must not keep marks up for long after it stops
  queue->bytes = bytes;
  bpf_spin_unlock(&queue->lock);
  return bytes;
}

static __always_inline int should_mark(const struct lab_link_config* config, __u64 bytes) {
  __u64 low = config->vq_min_bytes, high = config->vq_max_bytes;

  if (bytes <= low) return 0;
  if (bytes >= high || high <= low) return 1;
  return bpf_get_prandom_u32() < config->vq_p_max * (bytes - low) / (high - low);
}

// What is queued on an uplink and what went over it lately, in bytes. Read without the lock: a choice between uplinks
// may be a packet off.
static __always_inline __u64 burden(__u32 dir, __u64 now) {
  struct lab_virtual_queue* queue = bpf_map_lookup_elem(&lab_queues, &dir);
  struct lab_link_config* config = bpf_map_lookup_elem(&lab_config, &dir);
  __u64 elapsed, drained;

  if (!queue || !config) return ~0ull;
  elapsed = now > queue->updated_ns ? now - queue->updated_ns : 0;
  if (elapsed > 1000000000) return 0;
  drained = (elapsed * config->vq_rate) >> LAB_VQ_SHIFT;
  return (queue->bytes > drained ? queue->bytes - drained : 0) + faded(queue->recent_bytes, elapsed);
}

static __always_inline __u32 lightest_spine(__u32 leaf, __u32 spines, __u64 now) {
  __u32 best = bpf_get_prandom_u32() % spines, first = best;  // of equal ones any
  __u64 least = ~0ull;

  for (__u32 i = 0; i < LAB_MAX_SPINES; ++i) {
    __u32 spine = (first + i) % spines;
    __u64 bytes;

    if (i >= spines) break;
    bytes = burden(2 * (leaf * LAB_MAX_SPINES + spine), now);
    if (bytes >= least) continue;
    least = bytes;
    best = spine;
  }
  return best;
}

// A flow keeps its uplink until it has paused for the gap that was set.
static __always_inline __u32 flowlet_spine(__u32 dir, __u64 setting, const struct lab_packet* p) {
  __u32 leaf = (setting >> LAB_HASH_LEAF_SHIFT) & 0xff, spines = (setting >> LAB_HASH_SPINES_SHIFT) & 0xff;
  struct lab_flow_key key = {
      .direction = dir, .saddr = p->saddr, .daddr = p->daddr, .dqpn = p->dqpn, .probe = is_probe(p)};
  struct lab_flowlet* flow = bpf_map_lookup_elem(&lab_flowlets, &key);
  struct lab_flowlet fresh = {.last_ns = bpf_ktime_get_ns()};

  if (!spines || spines > LAB_MAX_SPINES) return 0;
  if (flow && fresh.last_ns - flow->last_ns < setting >> LAB_HASH_GAP_SHIFT) {
    flow->last_ns = fresh.last_ns;
    return flow->spine;
  }
  fresh.spine = lightest_spine(leaf, spines, fresh.last_ns);
  bpf_map_update_elem(&lab_flowlets, &key, &fresh, BPF_ANY);
  return fresh.spine;
}

// ECMP takes a packet's hash where it has one.
static __always_inline void choose_hash(struct __sk_buff* skb, __u32 dir, const struct lab_packet* p) {
  struct lab_link_config* config = bpf_map_lookup_elem(&lab_config, &dir);
  __u64 setting = config && p->roce ? *(volatile __u64*)&config->hash : LAB_HASH_PORTS;
  __u32 mode = setting & 0xff, spines = (setting >> LAB_HASH_SPINES_SHIFT) & 0xff;
  __u32 hash = (p->saddr * 0x9e3779b1u ^ p->daddr) * 0x85ebca6bu;

  // A veth pair carries the sender's socket hash along, and ECMP would use it; a wire does not.
  if (mode == LAB_HASH_PORTS) {
    bpf_set_hash_invalid(skb);
    return;
  }
  if (mode == LAB_HASH_FLOWLETS && spines) {
    // The kernel compares half of the hash with equal shares of 2^31, one per next hop in the route's order.
    __u32 share = 0x80000000u / spines;

    bpf_set_hash(skb, (flowlet_spine(dir, setting, p) * share + share / 2) << 1);
    return;
  }
  if (mode == LAB_HASH_TTL) hash = (hash ^ p->sport ^ (__u32)p->ttl << 16) * 0xc2b2ae35u;
  if (mode == LAB_HASH_QPN) hash = ((hash ^ p->sport) * 0xc2b2ae35u ^ p->dqpn) * 0x27d4eb2fu;
  if (mode == LAB_HASH_SPRAY) hash = bpf_get_prandom_u32();
  bpf_set_hash(skb, (hash ^ hash >> 15) * 0x846ca68bu);
}

static __always_inline __u32 port_number(struct __sk_buff* skb) { return skb->ifindex - LAB_IFINDEX_BASE; }

SEC("tc")
int lab_ingress(struct __sk_buff* skb) {
  __u32 port = port_number(skb), dir;
  struct lab_packet p;

  parse(skb, &p);
  if (port < LAB_SPINE_DIRS) {
    dir = port ^ 1;  // the leaf's end (even) receives down (odd), the spine's end (odd) receives up (even)
  } else {
    struct lab_link_counters* link;

    dir = LAB_SPINE_DIRS + 2 * (port - LAB_SPINE_DIRS);
    choose_hash(skb, dir, &p);
    link = bpf_map_lookup_elem(&lab_links, &dir);
    if (link) count_offered(skb, link);
  }
  return cross_wire(skb, dir, &p) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int lab_egress(struct __sk_buff* skb) {
  __u32 port = port_number(skb), dir = port < LAB_SPINE_DIRS ? port : 2 * port - LAB_SPINE_DIRS + 1;
  struct lab_link_config* config = bpf_map_lookup_elem(&lab_config, &dir);
  struct lab_link_counters* link = bpf_map_lookup_elem(&lab_links, &dir);
  struct lab_packet p;

  if (!config || !link) return TC_ACT_UNSPEC;
  parse(skb, &p);
  // The class, for queues by class (the pause gate).
  skb->priority = p.dscp == LAB_ROCE_DSCP ? 0 : LAB_OTHER_CLASS;
  count_offered(skb, link);
  if (port >= LAB_SPINE_DIRS && cross_wire(skb, dir, &p)) return TC_ACT_SHOT;
  if (!config->vq_rate) return TC_ACT_UNSPEC;
  // Every packet fills the virtual queue; only ECT packets that are not marked yet can be marked.
  if (should_mark(config, virtual_queue(skb, dir, config)) && (p.ecn == 1 || p.ecn == 2) && bpf_skb_ecn_set_ce(skb))
    __sync_fetch_and_add(&link->ce_marks, 1);
  return TC_ACT_UNSPEC;
}

SEC("xdp.frags")
int lab_pass(struct xdp_md* ctx) { return XDP_PASS; }

char _license[] SEC("license") = "Dual BSD/GPL";
