/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Time stamps where the product takes them, tc egress and XDP ingress, and nothing else: what they are worth. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "tests/bench/clock_stamps_abi.h"

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, STAMPS_MAX);
  __type(key, __u32);
  __type(value, struct stamps_sample);
} samples SEC(".maps");

__u32 received = 0;

#define PAYLOAD_OFFSET (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))

static __always_inline struct stamps_payload* find(void* data, void* end) {
  struct ethhdr* eth = data;
  struct iphdr* ip = data + sizeof(*eth);
  struct udphdr* udp = (void*)ip + sizeof(*ip);
  struct stamps_payload* payload = data + PAYLOAD_OFFSET;
  if ((void*)(payload + 1) > end) return 0;
  if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != IPPROTO_UDP) return 0;
  if (udp->dest != bpf_htons(STAMPS_PORT) || payload->magic != bpf_htonl(STAMPS_MAGIC)) return 0;
  return payload;
}

SEC("tc")
int stamps_egress(struct __sk_buff* skb) {
  struct stamps_payload* payload;
  __u64 now;
  if (bpf_skb_pull_data(skb, PAYLOAD_OFFSET + sizeof(*payload))) return TC_ACT_UNSPEC; /* shorter ones are not ours */
  payload = find((void*)(long)skb->data, (void*)(long)skb->data_end);
  if (!payload) return TC_ACT_UNSPEC;
  now = bpf_ktime_get_ns();
  payload->t1 = now;
  return TC_ACT_UNSPEC;
}

SEC("xdp.frags")
int stamps_ingress(struct xdp_md* ctx) {
  __u64 now = bpf_ktime_get_ns();
  struct stamps_payload* payload = find((void*)(long)ctx->data, (void*)(long)ctx->data_end);
  struct stamps_sample* sample;
  __u32 index;
  if (!payload) return XDP_PASS;
  index = __sync_fetch_and_add(&received, 1);
  sample = bpf_map_lookup_elem(&samples, &index);
  if (!sample) return XDP_DROP;
  sample->t1 = payload->t1;
  sample->t2 = now;
  sample->path = payload->path;
  return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
