// SPDX-License-Identifier: Apache-2.0
//
// The flow records, read once per decision window (those of received flows once per second), and what follows from
// them: whose queue pairs they are, which pairs carry data and in which class, which ports are nobody's path any more.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/peer_names.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class FlowReader {
 public:
  struct Asks {
    std::function<void(uint32_t pair, bool carries_data)> set_active;
    std::function<void(uint32_t pair, uint8_t dscp)> set_class;  // its probes ride in from now on
    std::function<bool()> follows_classes;                       // no class of the probes is configured
    std::function<double()> loss_limit;                          // steering.loss_limit
  };

  // All of them outlive it.
  FlowReader(FlowBook& flows, FlowRecords& records, const PairTable& pairs, rdma::QpRegistry& qps,
             const probe::Mesh& mesh, NativePorts& natives, Totals& totals, const PeerNames& names,
             const Clock& monotonic, EventSink& events, Asks asks)
      : flows_(flows),
        records_(records),
        pairs_(pairs),
        qps_(qps),
        mesh_(mesh),
        natives_(natives),
        totals_(totals),
        names_(names),
        monotonic_(monotonic),
        events_(events),
        asks_(std::move(asks)) {}

  void ReadSent(int64_t since_ns);  // when the window began
  void ReadReceived();

 private:
  void TakeSent(const FlowKey& key, const cw_tx_flow& record, int64_t now_ns, double seconds);
  void TakeReceived(const FlowKey& key, const cw_flow& record, int64_t now_ns);
  void LinkQps(const FlowKey& sent, FlowEntry& flow);
  void ReplaceStalePorts();
  void FollowClasses(int64_t now_ns);
  void SetActive(PairState& pair, int64_t now_ns);

  FlowBook& flows_;
  FlowRecords& records_;
  const PairTable& pairs_;
  rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  NativePorts& natives_;
  Totals& totals_;
  const PeerNames& names_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
