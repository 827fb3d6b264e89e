/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* SipHash-2-4 with a 64-bit result: the MAC of probes and messages, in BPF and in userspace.
 * J.-P. Aumasson, D. J. Bernstein: SipHash: a fast short-input PRF, 2012. Pure; any thread. */
#ifndef CW_MAPS_SIPHASH_H
#define CW_MAPS_SIPHASH_H

#include <linux/types.h>

struct cw_sip_state {
  __u64 v0, v1, v2, v3;
};

static inline __attribute__((always_inline)) __u64 cw_sip_rotl(__u64 x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

static inline __attribute__((always_inline)) void cw_sip_round(struct cw_sip_state* s) {
  s->v0 += s->v1;
  s->v2 += s->v3;
  s->v1 = cw_sip_rotl(s->v1, 13) ^ s->v0;
  s->v3 = cw_sip_rotl(s->v3, 16) ^ s->v2;
  s->v0 = cw_sip_rotl(s->v0, 32);
  s->v2 += s->v1;
  s->v0 += s->v3;
  s->v1 = cw_sip_rotl(s->v1, 17) ^ s->v2;
  s->v3 = cw_sip_rotl(s->v3, 21) ^ s->v0;
  s->v2 = cw_sip_rotl(s->v2, 32);
}

static inline __attribute__((always_inline)) void cw_sip_absorb(struct cw_sip_state* s, __u64 word) {
  s->v3 ^= word;
  cw_sip_round(s);
  cw_sip_round(s);
  s->v0 ^= word;
}

/* SipHash-2-4 of the 8 * nwords bytes at words, each word little-endian in memory. In BPF nwords is a constant, so that
 * the loop has a bound that the verifier sees. */
static inline __attribute__((always_inline)) __u64 cw_siphash24(const __u64 key[2], const __u64* words, __u32 nwords) {
  struct cw_sip_state s = {
      key[0] ^ 0x736f6d6570736575ULL,
      key[1] ^ 0x646f72616e646f6dULL,
      key[0] ^ 0x6c7967656e657261ULL,
      key[1] ^ 0x7465646279746573ULL,
  };
  for (__u32 i = 0; i < nwords; ++i) cw_sip_absorb(&s, words[i]);
  cw_sip_absorb(&s, ((__u64)nwords * 8) << 56); /* the last block: no bytes left over, and the length */
  s.v2 ^= 0xff;
  cw_sip_round(&s);
  cw_sip_round(&s);
  cw_sip_round(&s);
  cw_sip_round(&s);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

#endif
