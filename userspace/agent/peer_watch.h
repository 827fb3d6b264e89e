// SPDX-License-Identifier: Apache-2.0
//
// Peers, and pairs of NICs, that are silent on all paths: reported once when it begins and once when it ends, of all of
// a moment together.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/silent_peers.h"

namespace cw::agent {

class PeerWatch {
 public:
  // rounds_unseen: of probes to this pair that were sent and that our own program has not seen leave. All of them
  // outlive it.
  PeerWatch(const PairTable& pairs, const NicTable& nics, EventSink& events,
            std::function<uint32_t(const PairState& pair)> rounds_unseen)
      : pairs_(pairs), nics_(nics), events_(events), rounds_unseen_(std::move(rounds_unseen)) {}

  // Its probes end within this host: no route, nobody answers for the peer's address, or a firewall.
  bool DoNotLeave(uint32_t pair) const {
    const auto at = unseen_looks_.find(pair);
    return at != unseen_looks_.end() && at->second >= kUnseenLooks;
  }
  void Look(int64_t now_ns);  // CLOCK_MONOTONIC; looks once a second, however often it is called

 private:
  static constexpr int kUnseenLooks = 2;  // in a row

  SilentPeers::Seen SeenOf(const PairState& pair) const;
  bool AllStay(const std::string& peer) const;

  const PairTable& pairs_;
  const NicTable& nics_;
  EventSink& events_;
  const std::function<uint32_t(const PairState& pair)> rounds_unseen_;
  std::map<uint32_t, int> unseen_looks_;  // by pair
  SilentPeers silent_;
  int64_t looked_ns_ = 0;
};

}  // namespace cw::agent
