// SPDX-License-Identifier: Apache-2.0
//
// Which pairs want their next rounds soon: those with a slot that is suspect or dead, and, while they carry data, those
// of which the peer has told of the last round, but not of every slot. The kernel judges slots (bpf/liveness.h); this
// only decides how often a pair is asked. Pure: time comes in; the pair's record is read. One thread per memory.
#pragma once

#include <cstdint>

#include "maps/abi.h"

namespace cw::probe {

// What is remembered of a pair between two looks.
struct DoubtMemory {
  uint32_t mask = 0;     // slots in doubt
  int64_t since_ns = 0;  // when the newest of them was
};

struct DoubtVerdict {
  bool active = false;  // the pair's rounds come at the active interval …
  bool hurry = false;   // … and before those of all others
};

// slots: those that are probed; round: the newest sent. A doubt holds for doubt_ns at most.
DoubtVerdict JudgeDoubt(const cw_pair& pair, uint32_t slots, uint32_t round, bool carries_data, int64_t now_ns,
                        int64_t doubt_ns, DoubtMemory& memory);

// For how long to wait before a round's answers are looked at; 0: the next round comes soon enough.
int64_t LookAfterNs(int64_t interval_ns, int64_t active_interval_ns);

}  // namespace cw::probe
