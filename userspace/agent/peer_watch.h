// SPDX-License-Identifier: Apache-2.0
//
// Peers, and pairs of NICs, that are silent on all paths: reported once when it begins and once when it ends, of all of
// a moment together.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/silent_peers.h"

namespace cw::agent {

class PeerWatch {
 public:
  // All of them outlive it.
  PeerWatch(const PairTable& pairs, const NicTable& nics, EventSink& events)
      : pairs_(pairs), nics_(nics), events_(events) {}

  void Look(int64_t now_ns);  // CLOCK_MONOTONIC; looks once a second, however often it is called

 private:
  SilentPeers::Seen SeenOf(const PairState& pair) const;

  const PairTable& pairs_;
  const NicTable& nics_;
  EventSink& events_;
  SilentPeers silent_;
  int64_t looked_ns_ = 0;
};

}  // namespace cw::agent
