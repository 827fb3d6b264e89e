// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the agent's parts share: the maps in plain memory with one pair, and what is told and sent.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/probe_fakes.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/peer_names.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class RecordedEvents final : public EventSink {
 public:
  void Log(telemetry::Event event) override { all.push_back(std::move(event)); }
  std::vector<telemetry::Event> Take() { return std::exchange(all, {}); }

  std::vector<telemetry::Event> all;
};

class RecordedMail final : public PeerMail {
 public:
  void Send(uint32_t pair, const probe::Body& body) override { all.emplace_back(pair, body); }
  // Those of one kind, to whomever; all are forgotten.
  template <typename Message>
  std::vector<Message> Take() {
    std::vector<Message> out;
    for (const auto& [pair, body] : std::exchange(all, {})) {
      if (const auto* message = std::get_if<Message>(&body)) out.push_back(*message);
    }
    return out;
  }

  std::vector<std::pair<uint32_t, probe::Body>> all;
};

// A host with one NIC and one pair to the peer h2.
struct OnePair {
  static constexpr uint32_t kIfindex = 2;
  const Addr local = probe::TestAddr("10.0.0.1"), remote = probe::TestAddr("10.0.1.1");

  OnePair() {
    (void)mesh.Configure({{.local = local, .local_ifindex = kIfindex, .remote = remote, .peer = "h2"}});
    index = mesh.Find({local, remote}).value();
    auto state = std::make_unique<PairState>();
    state->index = index;
    state->key = {local, remote};
    state->ifindex = kIfindex;
    state->peer = "h2";
    pairs[index] = std::move(state);
    nics.push_back({.config = {.name = "eth0"}, .ifindex = kIfindex, .address = local});
    names.names[remote] = "h2";
  }
  PairState& pair() { return *pairs.at(index); }
  FlowKey FlowTo(uint32_t qpn) const { return {.src = local, .dst = remote, .dqpn = qpn}; }
  FlowEntry& AddSent(uint32_t qpn) {
    FlowEntry& flow = flows.sent[FlowTo(qpn)];
    flow.tx.pair = index;
    flow.tx.slot = CW_SLOT_NONE;
    return flow;
  }

  probe::KeyRing keys = probe::TestKeys();
  probe::MemoryPairStore store{8};
  probe::Mesh mesh{&store, &keys, {.session = 1}};
  uint32_t index = 0;
  PairTable pairs;
  NicTable nics;
  FlowBook flows;
  PeerNames names;
  RecordedEvents events;
  RecordedMail mail;
};

}  // namespace cw::agent
