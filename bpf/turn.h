/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The order in which a host takes paths. Pure: compiles for BPF and for the host. */
#ifndef CW_BPF_TURN_H
#define CW_BPF_TURN_H

#include "bpf/parse.h"

/* Where the turn-th of n slots lies after a host's first one: far apart first (of eight 0, 4, 2, 6, 1, 5, 3, 7), each
 * once in n turns. turn < n <= 16. Eight and sixteen: the bits reversed (the nibbles are those of 0 to 15); up to four:
 * in order, which leaves no overlap there; others: the halves. */
CW_INLINE __u32 cw_turn_offset(__u32 turn, __u32 n) {
  if (n & (n - 1)) return (turn & 1) * ((n + 1) >> 1) + (turn >> 1);
  if (n < 8) return turn;
  return (__u32)(0xf7b3d591e6a2c480ULL >> (turn * 4 & 63) & 15) * n >> 4;
}

#endif
