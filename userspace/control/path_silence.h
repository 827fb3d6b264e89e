// SPDX-License-Identifier: Apache-2.0
//
// How long each path of a pair of NICs has been silent: probed, and no probe of it is known to have arrived. The rule
// for dead paths (bpf/liveness.h) wants a witness, another path that answers; where all are silent there is none, and
// their state stays as it was. Silence needs no witness. It is no verdict on the path: the peer, its NIC, a switch or
// this host may be the cause.
//
// Only time in which probes were sent counts, and in which somebody looked: an agent that was stopped, or got no
// processor, has seen no silence, and what it counted before does not go on: a silence that is not known yet begins
// anew. What arrived is told by the programs' records (progress_round, peer_round), which go on without the agent.
//
// Pure: time comes in (monotonic ns). Rounds are serial numbers (RFC 1982). One thread per object; 0.5 KiB for a pair.
#pragma once

#include <array>
#include <cstdint>

#include "userspace/model/names.h"

namespace cw::control {

class PathSilence {
 public:
  static constexpr int64_t kLeastNs = 1'000'000'000;  // of silence …
  static constexpr int kIntervals = 5;                // … and so many intervals: it is told
  static constexpr int64_t kAwayNs = 1'000'000'000;   // beyond its intervals: nobody looked

  struct Look {
    uint32_t round = 0;                         // newest that was sent
    int64_t interval_ns = 0;                    // between rounds
    uint16_t probed = 0;                        // slots
    std::array<uint32_t, kMaxSlots> arrived{};  // newest round known to have arrived at the peer
    bool peer_probes = false;                   // this pair, now or at some time
    uint32_t peer_round = 0;                    // newest round of the peer that arrived here, on any slot
  };
  // Often: at least each second. True: a path, or the peer, began or ended to be silent.
  bool Step(int64_t now_ns, const Look& look);
  void Forget(uint8_t slot) { slots_[slot] = {}; }  // it is another path now

  // So long; 0: it is not silent.
  int64_t SilentNs(uint8_t slot) const { return slots_[slot].silent ? slots_[slot].silent_ns : 0; }
  // Of the slots that are probed all are silent.
  bool AllSilent() const { return probed_ != 0 && silent_ == probed_; }
  // The peer's own probes: whether they arrive. Not known: it never sent any.
  enum class Peer : uint8_t { kNotKnown, kHeard, kSilent };
  Peer peer() const { return peer_; }

 private:
  struct Slot {
    bool known = false, silent = false;
    uint32_t arrived = 0;
    int64_t silent_ns = 0;
  };
  bool StepPeer(int64_t passed_ns, int64_t least_ns, const Look& look);

  std::array<Slot, kMaxSlots> slots_{};
  uint16_t probed_ = 0, silent_ = 0;
  bool began_ = false;
  uint32_t round_ = 0, peer_round_ = 0;
  int64_t looked_ns_ = 0, round_ns_ = 0, peer_silent_ns_ = 0;
  Peer peer_ = Peer::kNotKnown;
};

}  // namespace cw::control
