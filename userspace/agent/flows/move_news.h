// SPDX-License-Identifier: Apache-2.0
//
// What the kernel's program tells of flows: one appeared, or took another path; in mode observe what it would have
// done. Thread rule: the agent's loop.
#pragma once

#include <functional>
#include <utility>

#include "maps/abi.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/peer_names.h"

namespace cw::agent {

class MoveNews {
 public:
  struct Asks {
    std::function<void()> appeared;                    // a flow
    std::function<void(const cw_ev_move& move)> made;  // before it is told
  };

  // All of them outlive it.
  MoveNews(const PeerNames& names, DryRun& dry_run, EventSink& events, Asks asks)
      : names_(names), dry_run_(dry_run), events_(events), asks_(std::move(asks)) {}

  void OnMove(const cw_ev_move& move);  // of type CW_EV_MOVE or CW_EV_FLOW

 private:
  const PeerNames& names_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
