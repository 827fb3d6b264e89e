/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Indices of the counters of maps/abi.h, so that a parser can return its one exit reason as a number. */
#ifndef CW_BPF_COUNTERS_H
#define CW_BPF_COUNTERS_H

#include "bpf/compiler.h"
#include "maps/abi.h"

enum cw_counter {
#define CW_COUNTER_INDEX(name, text) CW_COUNT_##name,
  CW_COUNTERS(CW_COUNTER_INDEX)
#undef CW_COUNTER_INDEX
      CW_COUNT_END
};

#endif
