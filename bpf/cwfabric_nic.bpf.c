/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The dataplane's ingress program for one NIC, bound to it, so that it may ask the driver for the NIC's stamps. An
 * object of its own: kernels before 6.3 refuse it, and no other program may contain the question. */
#define CW_NIC_STAMPS 1
#include "bpf/cwfabric.bpf.c"
