/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Stands for the release before an upgrade, or after it: the dataplane as it is, in other words. One instruction more
 * gives both programs another tag, so the loader has to exchange them; what they do to packets is the same, so whatever
 * a queue pair notices of an exchange is the exchange. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bpf/parse.h"

static __always_inline void bench_another_text(void) { asm volatile("r0 = 2" : : : "r0"); }
#define cw_parse_udp(data, end, packet) (bench_another_text(), (cw_parse_udp)(data, end, packet))

#include "bpf/cwfabric.bpf.c"
