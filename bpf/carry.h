/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* NIC failover: packets of a pair of NICs that is out of reach leave by another pair of the same two hosts, with that
 * pair's addresses and a tag in the destination QPN, and are put back and given to their own NIC where they arrive.
 * Since every byte that the ICRC covers is as it was when the RDMA stack sees the packet, the ICRC is not touched; one
 * that is not put back fails there and is dropped. Which pair carries which is the agent's decision. BPF only. */
#ifndef CW_BPF_CARRY_H
#define CW_BPF_CARRY_H

#include <linux/pkt_cls.h>

#include "bpf/dataplane.h"
#include "bpf/parse.h"

/* Byte of the BTH that holds the upper 8 bits of the destination QPN. */
#define CW_BTH_QPN_OFF 5
#define CW_CARRY_QPN_MASK ((1u << CW_CARRY_TAG_SHIFT) - 1)

static __always_inline __be32 cw_v4_of(const __u8* address) { return ((const cw_word32*)address)[3]; }

/* Other addresses, of the packet's own family, and the upper byte of the destination QPN. Returns 0 if done, else the
 * packet is as it was: the QPN is the farthest, so the one that may fail for want of memory. */
static __always_inline int cw_readdress(struct __sk_buff* skb, const struct cw_packet* p, const __u8* saddr,
                                        const __u8* daddr, __u8 qpn_top) {
  __u32 check_off = p->l3_off + __builtin_offsetof(struct cw_ip4_hdr, check);
  if (bpf_skb_store_bytes(skb, p->l4_off + CW_UDP_LEN + CW_BTH_QPN_OFF, &qpn_top, 1, 0)) return -1;
  if (cw_is_ip6(p)) {
    bpf_skb_store_bytes(skb, p->l3_off + __builtin_offsetof(struct cw_ip6_hdr, saddr), saddr, 16, 0);
    bpf_skb_store_bytes(skb, p->l3_off + __builtin_offsetof(struct cw_ip6_hdr, daddr), daddr, 16, 0);
    return 0;
  }
  bpf_l3_csum_replace(skb, check_off, cw_v4_of(p->key.saddr), cw_v4_of(saddr), 4);
  bpf_l3_csum_replace(skb, check_off, cw_v4_of(p->key.daddr), cw_v4_of(daddr), 4);
  bpf_skb_store_bytes(skb, p->l3_off + __builtin_offsetof(struct cw_ip4_hdr, saddr), saddr + 12, 4, 0);
  bpf_skb_store_bytes(skb, p->l3_off + __builtin_offsetof(struct cw_ip4_hdr, daddr), daddr + 12, 4, 0);
  return 0;
}

/* Plain Ethernet, no UDP checksum (it would cover the addresses; RoCE has none), and by a pair of the same family. */
static __always_inline int cw_may_carry(const struct cw_packet* p, const struct cw_pair_key* by) {
  return p->l3_off == sizeof(struct cw_eth_hdr) && !p->udp_check && cw_address_is_v4(by->local) == !cw_is_ip6(p) &&
         cw_address_is_v4(by->remote) == !cw_is_ip6(p);
}

/* Sends the packet by the pair that carries this one. Its own egress program sees it there, as a flow of that pair.
 * TC_ACT_UNSPEC: it is as it was, and goes its own way. */
static __noinline int cw_carry(struct __sk_buff* skb, const struct cw_packet* p, __u32 pair) {
  struct cw_carry_out* out = bpf_map_lookup_elem(&cw_carry_out, &pair);
  if (!out || !out->ifindex || !cw_may_carry(p, &out->pair) || p->key.dqpn > CW_CARRY_QPN_MASK) return TC_ACT_UNSPEC;
  if (cw_readdress(skb, p, out->pair.local, out->pair.remote,
                   (__u8)(p->key.dqpn >> 16 | out->tag << (CW_CARRY_TAG_SHIFT - 16))))
    return TC_ACT_UNSPEC;
  bpf_set_hash_invalid(skb);
  cw_count(CW_COUNT_nic_carried);
  return bpf_redirect_neigh(out->ifindex, 0, 0, 0);
}

/* The other end: what it was, and to the NIC that it was for. */
static __noinline int cw_carry_restore(struct __sk_buff* skb, const struct cw_packet* p) {
  struct cw_carry_key key;
  struct cw_carry_in* in;
  cw_pair_key_in(&key.pair, p);
  key.tag = p->key.dqpn >> CW_CARRY_TAG_SHIFT;
  in = bpf_map_lookup_elem(&cw_carry_in, &key);
  if (!in || !in->ifindex || !cw_may_carry(p, &in->pair)) {
    cw_count(CW_COUNT_nic_unknown);
    return TC_ACT_UNSPEC;
  }
  if (cw_readdress(skb, p, in->pair.remote, in->pair.local, (__u8)((p->key.dqpn & CW_CARRY_QPN_MASK) >> 16)))
    return TC_ACT_UNSPEC;
  bpf_skb_store_bytes(skb, 0, in->mac, sizeof(in->mac), 0);
  cw_count(CW_COUNT_nic_restored);
  return bpf_redirect(in->ifindex, BPF_F_INGRESS);
}

#endif
