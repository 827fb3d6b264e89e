// SPDX-License-Identifier: Apache-2.0
//
// Which slots stand for flows' own ports. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/pair_state.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class NativePorts {
 public:
  struct Asks {
    // By which slot; CW_SLOT_NONE: none is free. label: that comes with the port over IPv6.
    std::function<uint8_t(uint32_t pair, uint16_t port, uint32_t label)> watch;
    std::function<void(uint32_t pair, uint16_t port)> release;
  };

  // All of them outlive it.
  NativePorts(FlowBook& flows, FlowRecords& records, const UnseenFlows& unseen, Asks asks)
      : flows_(flows), records_(records), unseen_(unseen), asks_(std::move(asks)) {}

  void Ensure(const FlowKey& key, FlowEntry& flow);
  // Unless another flow than `user` has the port, too.
  void Release(uint32_t pair, uint16_t port, const FlowKey& user);
  void ReleaseUnused(uint32_t pair, uint16_t port) { asks_.release(pair, port); }
  void OnNative(uint32_t pair, const probe::NativeChange& change);
  // Whether the pair's flows take the probes' paths has changed. Where they do not, they keep their own ports and
  // belong to no slot, so that no verdict about a slot moves them.
  void OnBlind(const PairState& pair);

 private:
  FlowBook& flows_;
  FlowRecords& records_;
  const UnseenFlows& unseen_;
  const Asks asks_;
};

}  // namespace cw::agent
