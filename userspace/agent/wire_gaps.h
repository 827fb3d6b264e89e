// SPDX-License-Identifier: Apache-2.0
//
// Was what a receiver asks for again missing when it arrived, or lost inside the receiver's host? A NAK does not say.
// The agent there sees packets before the host does, and counts gaps in their PSNs (bpf/psn.h). So this one asks it
// about flows whose NAKs grew, once a window. Pure. Thread rule: one thread per object (the agent's loop).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"
#include "userspace/probe/messages.h"

namespace cw::agent {

class WireGaps {
 public:
  struct Count {
    bool known = false;  // asked for in this window or the one before
    uint64_t gaps = 0;   // since the peer knows the flow; the last that it told
  };

  // One look at a flow that this host sends; naks: for a missing packet, in all.
  Count Look(uint32_t pair, const FlowKey& flow, uint64_t naks);
  // Ends a window: what to ask over which pair. Flows that were not looked at are forgotten.
  std::vector<std::pair<uint32_t, probe::GapReport>> Questions();
  // Of flows that were asked about; others in it are passed over.
  void Answered(const PairKey& pair, const probe::GapReport& answer);

 private:
  static constexpr int kNever = 1000;
  struct Flow {
    uint32_t pair = 0;
    uint64_t naks = 0;
    bool ask = false, seen = true;
    int windows = kNever;  // since the last answer
    uint64_t gaps = 0;
  };
  absl::flat_hash_map<FlowKey, Flow> flows_;
};

}  // namespace cw::agent
