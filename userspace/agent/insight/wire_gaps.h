// SPDX-License-Identifier: Apache-2.0
//
// What a receiver asks for again: was it lost on the way, overtaken by later packets, or lost inside the receiver's
// host? A NAK does not say. The agent there sees packets before the host does. It counts them, and the gaps in their
// PSNs (bpf/psn.h). So this one asks it about flows that are new or whose NAKs grew, once a window. Fewer packets there
// than were sent here: lost on the way. No gap: lost inside. Gaps and all packets: overtaken.
// The two counts are of two moments: packets are under way, and a peer whose processor is busy counts late. What is
// lost adds up, what is late does not. So all of the last answers have to lack more than each of the first ones did.
// Pure. Thread rule: one thread per object (the agent's loop).
#pragma once

#include <array>
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
    bool known = false;    // answered often enough, and in this window or the one before
    bool pending = false;  // not yet, but the peer is being asked
    uint64_t gaps = 0;     // since the first answer
    uint64_t missing = 0;  // packets sent that did not arrive, since the first answers; never too many
  };

  static constexpr int kCompared = 3;    // first and last answers
  static constexpr int kKnownAfter = 7;  // answers: by then a loss of every window is seen as such

  // One look at a flow that this host sends; in all: NAKs for a missing packet, packets sent.
  Count Look(uint32_t pair, const FlowKey& flow, uint64_t naks, uint64_t sent);
  // Ends a window: what to ask over which pair. Flows that were not looked at are forgotten.
  std::vector<std::pair<uint32_t, probe::GapReport>> Questions();
  // Of flows that were asked about; others in it are passed over.
  void Answered(const PairKey& pair, const probe::GapReport& answer);

 private:
  static constexpr int kNever = 1000;
  struct Flow {
    uint32_t pair = 0;
    uint64_t naks = 0, sent = 0;
    bool ask = true, seen = true;
    bool refused = false, cannot = false;  // NAKs since it is looked at; the peer does not see it
    int asked = 0;                         // questions since NAKs began, without an answer
    bool waits = false;                    // a message had no room for it
    uint32_t asked_at = 0;                 // sent when last asked; low bits, as the peer tells them
    int windows = kNever;                  // since the last answer
    int answers = 0;
    uint32_t first_gaps = 0;
    std::array<uint32_t, kCompared> first{}, last{};  // packets that it lacked
    uint64_t gaps = 0, missing = 0;
  };
  static void Take(Flow& flow, const probe::GapReport::Flow& told);
  absl::flat_hash_map<FlowKey, Flow> flows_;
};

}  // namespace cw::agent
