// SPDX-License-Identifier: Apache-2.0
//
// Peers that are silent on all paths: told once when it begins, and once when it ends, of all of a moment together.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/silent_peers.h"

namespace cw::agent {

class PeerWatch {
 public:
  // interval_ns: between probes of a pair now. All of them outlive it.
  PeerWatch(const PairTable& pairs, std::function<int64_t(uint32_t pair)> interval_ns, EventSink& events)
      : pairs_(pairs), interval_ns_(std::move(interval_ns)), events_(events) {}

  void Look(int64_t now_ns);  // CLOCK_MONOTONIC; looks once a second, however often it is called

 private:
  const PairTable& pairs_;
  const std::function<int64_t(uint32_t pair)> interval_ns_;
  EventSink& events_;
  SilentPeers silent_;
  int64_t looked_ns_ = 0;
};

}  // namespace cw::agent
