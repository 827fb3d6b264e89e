// SPDX-License-Identifier: Apache-2.0
//
// Flows that leave the tables: those whose queue pair is gone, when the kernel says so (as it destroys it, or by RDMA
// netlink's list: rdma/ended_flows.h), where no RDMA device tells those that were idle for long, and those of pairs
// that are gone. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "maps/abi.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/pair_state.h"
#include "userspace/model/clock.h"
#include "userspace/rdma/ended_flows.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class FlowEnds {
 public:
  // ctl: the record of the map, or one in plain memory. jiffies_at: of CLOCK_MONOTONIC ns. All of them outlive it.
  FlowEnds(FlowBook& flows, FlowRecords& records, const PairTable& pairs, const rdma::QpRegistry& qps,
           const UnseenFlows& unseen, NativePorts& natives, cw_ctl& ctl,
           std::function<uint64_t(int64_t monotonic_ns)> jiffies_at, const Clock& monotonic, EventSink& events)
      : flows_(flows),
        records_(records),
        pairs_(pairs),
        qps_(qps),
        unseen_(unseen),
        natives_(natives),
        ctl_(ctl),
        jiffies_at_(std::move(jiffies_at)),
        monotonic_(monotonic),
        events_(events) {}

  // list: the kernel's of connected queue pairs, whose peers the registry may know.
  void OnList(const std::vector<rdma::QpInfo>& list, rdma::KernelCover cover);
  // The kernel destroys it, and the registry has forgotten it. Its last packets may leave after this: the list finds
  // what they leave behind.
  void OnQpEnds(const rdma::QpInfo& qp);
  void ForgetIdle();  // once a second
  // The kernel stops inserting once the table was full; it may go on when flows were forgotten. Once a second.
  void ReopenTable();
  // Its flows leave on their native ports from now on, as those to any address that is no peer's.
  void ForgetPair(uint32_t pair);

 private:
  bool TableScarce() const;
  std::vector<FlowKey> Idle() const;
  void Forget(const std::vector<FlowKey>& keys);

  FlowBook& flows_;
  FlowRecords& records_;
  const PairTable& pairs_;
  const rdma::QpRegistry& qps_;
  const UnseenFlows& unseen_;
  NativePorts& natives_;
  cw_ctl& ctl_;
  const std::function<uint64_t(int64_t monotonic_ns)> jiffies_at_;
  const Clock& monotonic_;
  EventSink& events_;

  rdma::EndedFlows ended_;
  bool table_full_told_ = false;
};

}  // namespace cw::agent
