// SPDX-License-Identifier: Apache-2.0
//
// The last look before a move for balance. The rule (contention.h) draws two candidates and prefers one by what the
// last windows showed; meanwhile others may have moved there. So both are probed once more just before the move, and
// the delays of these few probes may turn the choice round. They are few, so only where they speak clearly: the first
// choice queues by now, and the other one queues less beyond better_than. They never start or stop a move by
// themselves: what a move is worth rests on windows. A candidate that did not answer in time counts with the last
// window's delay.
// Source: M. Mitzenmacher, "The power of two choices", 1996.
//
// Pure. Any thread.
#pragma once

#include <array>
#include <cstdint>

#include "userspace/model/flow.h"
#include "userspace/model/names.h"

namespace cw::control {

struct ContentionRules;
struct Move;

// A candidate as the probes just before the move found it.
struct FreshLook {
  uint8_t slot = kSlotNone;
  bool usable = false;  // a flow may still be put there
  int samples = 0;      // probes behind queue_ns that were sent after the decision; 0: none was answered in time …
  double queue_ns = 0;  // … and this is the last window's
  double base_ns = 0;   // base OWD
};

struct Reprobe {
  PairKey pair;
  FlowKey flow;
  bool stays = false;                     // the flow still is where it was when the move was decided, and may be moved
  std::array<FreshLook, 2> candidates{};  // the window's choice first
};

struct Settled {
  PairKey pair;
  FlowKey flow;
  uint8_t first = kSlotNone;  // the window's choice
  uint8_t to = kSlotNone;     // where the flow goes; kSlotNone: the move is given up
};

Settled Settle(const ContentionRules& rules, const Reprobe& seen);

// The move as it is to be made: to where settled says, which is somewhere, with what was seen as further evidence.
Move SettledMove(const ContentionRules& rules, Move move, const Reprobe& seen, const Settled& settled);

// Queueing from which on a path is congested, ns.
double QueueLimitNs(const ContentionRules& rules, double base_ns);

}  // namespace cw::control
