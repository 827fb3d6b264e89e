/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The first bytes of the Ethernet source address of frames that are to be dropped before the product sees them. */
#ifndef CW_TESTS_BENCH_FLOOD_MARK_H
#define CW_TESTS_BENCH_FLOOD_MARK_H

#define FLOOD_MARK_0 0x02
#define FLOOD_MARK_1 0xdd

#endif
