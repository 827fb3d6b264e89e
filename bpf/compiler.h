/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What the programs ask of the compiler, and hide from it and from the verifier. */
#ifndef CW_BPF_COMPILER_H
#define CW_BPF_COMPILER_H

#include <linux/types.h>

#define CW_INLINE static inline __attribute__((always_inline, unused))

/* For records that are changed or compared as whole words. */
typedef __u64 __attribute__((may_alias)) cw_word64;
typedef __u32 __attribute__((may_alias)) cw_word32;

#ifdef __clang__
#define CW_UNROLL(n) _Pragma("clang loop unroll(full)")
#define CW_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define CW_UNROLL(n) _Pragma(CW_STRINGIFY(GCC unroll n))
#define CW_NO_UNROLL _Pragma("GCC unroll 1")
#define CW_STRINGIFY(x) #x
#endif

/* The compiler knows nothing of v any more, so that it does not merge two checks of its bounds into one on a copy,
 * which the verifier would not connect with v. */
#define CW_OPAQUE(v) asm volatile("" : "+r"(v))

/* The verifier knows nothing of v any more, so that ways to one point that differ in v alone are followed on once.
 * v: __u64. x: __u64, a number that the verifier knows nothing of, one read from a packet, say. v keeps its value. */
#ifdef __bpf__
#define CW_FORGET(v, x) asm volatile("%0 += %1\n%0 -= %1" : "+r"(v) : "r"(x))
#else
#define CW_FORGET(v, x) ((void)(x))
#endif

#endif
