// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the agent's parts share: the maps in plain memory with one pair, and what is told and sent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/probe_fakes.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/timers.h"
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

class ManualTimers final : public Timers {
 public:
  void After(absl::Duration, std::function<void()> then) override { waiting.push_back(std::move(then)); }
  // What was asked for until now; false: nothing was.
  bool Run() {
    const auto due = std::exchange(waiting, {});
    for (const auto& then : due) then();
    return !due.empty();
  }

  std::vector<std::function<void()>> waiting;
};

// The records of the programs; wishes stay wishes.
class MemoryFlows final : public FlowRecords {
 public:
  absl::StatusOr<cw_tx_flow> Sent(const FlowKey& flow) const override { return Find(sent, flow); }
  absl::StatusOr<cw_flow> Received(const FlowKey& flow) const override { return Find(received, flow); }
  void ForEachSent(absl::FunctionRef<void(const FlowKey&, const cw_tx_flow&)> visit) const override {
    for (const auto& [flow, record] : sent) visit(flow, record);
  }
  void ForEachReceived(absl::FunctionRef<void(const FlowKey&, const cw_flow&)> visit) const override {
    for (const auto& [flow, record] : received) visit(flow, record);
  }
  size_t SentRoom() const override { return room; }
  absl::Status Want(const FlowKey& flow, uint8_t slot, uint16_t port, bool force) override {
    if (!sent.contains(flow)) return absl::NotFoundError("");
    sent[flow].want_slot = slot;
    sent[flow].want_port = port;
    sent[flow].want_force = force;
    return absl::OkStatus();
  }
  absl::Status Place(const FlowKey& flow, uint8_t slot, uint16_t port) override {
    if (!sent.contains(flow)) return absl::NotFoundError("");
    sent[flow].slot = slot;
    sent[flow].port = port;
    return absl::OkStatus();
  }
  absl::Status SetFlags(const FlowKey& flow, uint8_t set, uint8_t clear) override {
    if (!sent.contains(flow)) return absl::NotFoundError("");
    sent[flow].flags = static_cast<uint8_t>((sent[flow].flags & ~clear) | set);
    return absl::OkStatus();
  }

  absl::Status SetNativeSlot(const FlowKey& flow, uint8_t slot) override {
    if (!sent.contains(flow)) return absl::NotFoundError("");
    sent[flow].native_slot = slot;
    return absl::OkStatus();
  }
  absl::Status Withhold(const FlowKey& flow, uint8_t capabilities) override {
    if (!sent.contains(flow)) return absl::NotFoundError("");
    sent[flow].withheld = capabilities;
    return absl::OkStatus();
  }
  absl::Status SetPeerQpn(const FlowKey& flow, uint32_t peer_qpn) override {
    if (!received.contains(flow)) return absl::NotFoundError("");
    received[flow].peer_qpn = peer_qpn;
    return absl::OkStatus();
  }
  void EraseSent(const FlowKey& flow) override { sent.erase(flow); }
  void EraseReceived(const FlowKey& flow) override { received.erase(flow); }

  std::map<FlowKey, cw_tx_flow> sent;
  std::map<FlowKey, cw_flow> received;
  size_t room = 1000;

 private:
  template <typename Record>
  static absl::StatusOr<Record> Find(const std::map<FlowKey, Record>& records, const FlowKey& flow) {
    const auto at = records.find(flow);
    if (at == records.end()) return absl::NotFoundError("");
    return at->second;
  }
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
    nics.push_back({.config = {.name = "eth0"}, .device = "eth0", .ifindex = kIfindex, .address = local});
    names.names[remote] = "h2";
  }
  PairState& pair() { return *pairs.at(index); }
  cw_pair& shared() { return *mesh.shared(index); }
  FlowKey FlowTo(uint32_t qpn) const { return {.src = local, .dst = remote, .dqpn = qpn}; }
  FlowEntry& AddSent(uint32_t qpn) {
    FlowEntry& flow = flows.sent[FlowTo(qpn)];
    flow.tx.pair = index;
    flow.tx.slot = CW_SLOT_NONE;
    return flow;
  }
  // A flow of the programs' records by the slot, which nobody wants elsewhere; `more` completes its record.
  FlowKey AddFlow(
      MemoryFlows& records, uint32_t qpn, uint8_t slot,
      const std::function<void(cw_tx_flow&)>& more = [](cw_tx_flow&) {}) {
    cw_tx_flow& record = records.sent[FlowTo(qpn)];
    record.pair = index;
    record.slot = slot;
    record.port = slot == CW_SLOT_NONE ? 0 : mesh.slots(index).port(slot);
    record.want_slot = record.native_slot = CW_SLOT_NONE;
    more(record);
    AddSent(qpn).tx = record;
    return FlowTo(qpn);
  }
  // Paths by these ports, in slots from 0 on, all alive.
  void AddPaths(const std::vector<uint16_t>& ports) {
    (void)mesh.slots(index).SetPaths(
        ports, [](uint16_t) { return std::nullopt; }, 0);
    for (uint8_t s = 0; s < ports.size(); ++s) shared().slot[s].state = CW_SLOT_UP;
    shared().live_mask = (1u << ports.size()) - 1;
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
