/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The ICRC after a change of the UDP source port, in constant time. Pure: compiles for BPF and for the host.
 *
 * A CRC is linear: the ICRC changes by the CRC (start 0, no final inversion) of the changed bits followed by the n
 * bytes between them and the ICRC. That is the 16 changed bits as a polynomial, times x^(8n + 32), modulo the CRC's
 * own. cw_icrc_pow[n] holds x^(8n + 32); shifts and xors, eight for each of the two bytes side by side, do the product.
 * Source: InfiniBand Architecture Specification, annex A17.3.3 (what the ICRC covers); CRC-32 of IEEE 802.3, bits
 * reflected, so that bit 31 - i of a word is the coefficient of x^i. */
#ifndef CW_BPF_ICRC_H
#define CW_BPF_ICRC_H

#include "bpf/counters.h"

#define CW_ICRC_POLY 0xEDB88320u
#define CW_ICRC_POWS 9217         /* powers 0 to 9216 */
#define CW_ICRC_DISTANCE_MAX 9215 /* frames of a 9000-byte MTU fit */

/* Bytes between the source port and the ICRC, from the UDP length. */
CW_INLINE __u32 cw_icrc_distance(__u32 udp_len) { return udp_len - 2 - 4; }

/* A product instead of a mask: newer verifiers try both values of a mask of one bit, 2^16 paths in all. */
CW_INLINE __u32 cw_icrc_times_x(__u32 v) { return (v >> 1) ^ (CW_ICRC_POLY * (v & 1)); }

/* What to xor the ICRC with. far, near: cw_icrc_pow[distance + 1] and [distance]; changed: old port ^ new port, both as
 * in the packet; the ICRC is read and written in little-endian order. */
CW_INLINE __u32 cw_icrc_patch(__u32 far, __u32 near, __u16 changed) {
  __u32 sum = 0;
  CW_UNROLL(8)
  for (int bit = 7; bit >= 0; --bit) {
    sum ^= far * ((changed >> bit) & 1u) ^ near * ((changed >> (bit + 8)) & 1u);
    far = cw_icrc_times_x(far);
    near = cw_icrc_times_x(near);
  }
  return sum;
}

/* A patch remembered: what to xor the ICRC with, and the change of port and the distance that it is for. Packets of a
 * flow have a few lengths only, most of them the full one. */
CW_INLINE __u64 cw_icrc_patch_word(__u32 patch, __u32 distance, __u16 changed) {
  return (__u64)patch << 32 | (__u64)distance << 16 | changed;
}
CW_INLINE int cw_icrc_patch_is_for(__u64 word, __u32 distance, __u16 changed) {
  return (__u32)word == (distance << 16 | changed);
}

#ifndef __bpf__
/* Fills CW_ICRC_POWS words. */
static inline void cw_icrc_pow_fill(__u32* pow) {
  pow[0] = CW_ICRC_POLY; /* x^32 modulo the polynomial */
  for (int n = 1; n < CW_ICRC_POWS; ++n) {
    pow[n] = pow[n - 1];
    for (int bit = 0; bit < 8; ++bit) pow[n] = cw_icrc_times_x(pow[n]);
  }
}
#endif

#endif
