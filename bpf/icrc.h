/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The ICRC after a change of the UDP source port, in constant time. Pure: compiles for BPF and for the host.
 *
 * A CRC is linear: the ICRC changes by the CRC (start 0, no final inversion) of the changed bits followed by the n
 * bytes between them and the ICRC. That is the 16 changed bits as a polynomial, times x^(8n + 32), modulo the CRC's
 * own. cw_icrc_pow[n] holds x^(8n + 32), sixteen steps of shift and xor do the product. Source: InfiniBand Architecture
 * Specification, annex A17.3.3 (what the ICRC covers); CRC-32 of IEEE 802.3, bits reflected, so that bit 31 - i of a
 * word is the coefficient of x^i. */
#ifndef CW_BPF_ICRC_H
#define CW_BPF_ICRC_H

#include "bpf/counters.h"

#define CW_ICRC_POLY 0xEDB88320u
#define CW_ICRC_POWS 9217 /* distances 0 to 9216: frames of a 9000-byte MTU fit */

/* Bytes between the source port and the ICRC, from the UDP length. */
CW_INLINE __u32 cw_icrc_distance(__u32 udp_len) { return udp_len - 2 - 4; }

CW_INLINE __u32 cw_icrc_times_x(__u32 v) { return (v >> 1) ^ (CW_ICRC_POLY & (0u - (v & 1))); }

/* Four bits at the low end of a word, times x^4. */
static const __u32 cw_icrc_x4[16] = {
    0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
    0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
};

/* What to xor the ICRC with. pow: cw_icrc_pow[distance]; changed: old port ^ new port, both as in the packet; the ICRC
 * is read and written in little-endian order. The product first, 48 bits long, then its upper degrees reduced: without
 * a branch, and without a known value masked by a bit, of which recent verifiers follow both outcomes. */
CW_INLINE __u32 cw_icrc_patch(__u32 pow, __u16 changed) {
  __u64 factor = (__u64)pow << 32, product = 0;
  __u32 high = 0;
#pragma GCC unroll 16
  for (int bit = 0; bit < 16; ++bit) product ^= (factor >> bit) & (0ull - ((changed >> (15 - bit)) & 1u));
#pragma GCC unroll 4
  for (int at = 16; at < 32; at += 4) high = (high >> 4) ^ cw_icrc_x4[((__u32)(product >> at) ^ high) & 15];
  return (__u32)(product >> 32) ^ high;
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
