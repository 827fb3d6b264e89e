// SPDX-License-Identifier: Apache-2.0
//
// What cwctl status, counters and doctor show of this host. It writes nothing. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/counter_sink.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/insight/cause_book.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/vitals.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"

namespace cw::agent {

class StatusView {
 public:
  struct Rooms {  // how many fit into the maps
    uint64_t sent = 0, received = 0, pairs = 0;
  };
  struct Asks {
    std::function<const probe::Discovery*(uint32_t pair)> discovery;
    std::function<bool(const PairKey&pair)> silent, carried;  // as NIC failover sees it
    std::function<bool(uint32_t pair)> do_not_leave;          // its probes (PeerWatch)
    std::function<void(const NicState& nic, v1::NicStatus& out)> add_transport;
    std::function<void(v1::StatusReply& reply)> add_others;   // keys, configuration, probes by verbs
    std::function<absl::StatusOr<cw_counters>()> counters;    // of the programs
    std::function<void(const CounterSink& add)> tell_counts;  // of the parts
    std::function<std::string()> no_qp_moments;               // why; "": they are told
    Rooms rooms;
  };

  // version: of this program. All of them outlive it.
  StatusView(std::string version, const config::Config& config, const Vitals& vitals, const Modes& modes,
             const Deadlines& deadlines, const Lease& lease, const Breaker& breaker, const PairTable& pairs,
             const NicTable& nics, const FlowBook& flows, const CauseBook& causes, const PathsView& paths,
             const FlowsView& flows_view, const Clock& monotonic, Asks asks)
      : version_(std::move(version)),
        config_(config),
        vitals_(vitals),
        modes_(modes),
        deadlines_(deadlines),
        lease_(lease),
        breaker_(breaker),
        pairs_(pairs),
        nics_(nics),
        flows_(flows),
        causes_(causes),
        paths_(paths),
        flows_view_(flows_view),
        monotonic_(monotonic),
        asks_(std::move(asks)) {}

  v1::StatusReply Status() const;
  v1::DoctorReply Doctor() const;

 private:
  void AddMode(v1::StatusReply& reply, int64_t now_ns) const;
  void AddNics(v1::StatusReply& reply) const;
  void AddPeers(v1::StatusReply& reply, int64_t now_ns) const;
  void AddFrozen(const PairState& pair, v1::StatusReply& reply) const;
  void AddProber(v1::StatusReply& reply) const;
  void AddCounters(v1::StatusReply& reply) const;

  const std::string version_;
  const config::Config& config_;
  const Vitals& vitals_;
  const Modes& modes_;
  const Deadlines& deadlines_;
  const Lease& lease_;
  const Breaker& breaker_;
  const PairTable& pairs_;
  const NicTable& nics_;
  const FlowBook& flows_;
  const CauseBook& causes_;
  const PathsView& paths_;
  const FlowsView& flows_view_;
  const Clock& monotonic_;
  const Asks asks_;
};

}  // namespace cw::agent
