// SPDX-License-Identifier: Apache-2.0
//
// What path discovery and the slots have to say: paths were found, took other switches, are chosen by ports or not; a
// slot means another path. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class FabricNews {
 public:
  struct Asks {
    std::function<void(PairState& pair)> blind;  // whether its flows take the probes' paths is otherwise now
    // Flows that were steered to this port of the slot go to another path; false: they cannot, or may not.
    std::function<bool(const PairState& pair, uint8_t slot, uint16_t port)> leave;
    std::function<void(uint32_t pair, const probe::NativeChange& change)> native;
  };

  // All of them outlive it.
  FabricNews(const PairTable& pairs, const FlowBook& flows, FlowRecords& records, LinkFlaps& links,
             const Clock& monotonic, EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        records_(records),
        links_(links),
        monotonic_(monotonic),
        events_(events),
        asks_(std::move(asks)) {}

  void OnTable(uint32_t index, const probe::PathTable& table);
  void OnInvalid(uint32_t index, const probe::DiscoveryEvent& event);
  void OnHashing(uint32_t index, probe::Hashing hashing);
  void OnSlotUpdate(uint32_t index, const probe::SlotUpdate& update);

 private:
  const PairTable& pairs_;
  const FlowBook& flows_;
  FlowRecords& records_;
  LinkFlaps& links_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
