// SPDX-License-Identifier: Apache-2.0
//
// What metrics show of all paths together; sums begin with the agent. Thread rule: the agent's loop.
#pragma once

#include <map>
#include <string>

#include "userspace/agent/flow_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/metrics/path_totals.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/pair_store.h"

namespace cw::agent {

class Totals {
 public:
  // All of them outlive it.
  Totals(const NicTable& nics, const PeerNames& names, const PairTable& pairs, const probe::Mesh& mesh,
         probe::PairStore& store)
      : nics_(nics), names_(names), pairs_(pairs), mesh_(mesh), store_(store) {}

  // Where what is measured of a pair, and what the flows of a NIC's address do, is added up; they stay where they are.
  // nullptr: it is of no NIC.
  metrics::NicDelays* DelaysOf(const PairState& pair);
  metrics::NicFlows* FlowsOf(const Addr& local);
  // A record of a received flow was read; `flow` as at the reading before, `added`: there was none.
  void CountReceived(const FlowKey& key, const FlowEntry& flow, const cw_flow& now, bool added);
  void ReceivedWereRead() { received_read_ = true; }  // all of them, once

  metrics::PathTotals Make();

 private:
  metrics::NicPaths CountPathsOf(const NicState& nic);

  const NicTable& nics_;
  const PeerNames& names_;
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  probe::PairStore& store_;

  metrics::DelayTotals delays_;
  std::map<std::string, metrics::NicFlows> flows_;  // by NIC
  bool received_read_ = false;  // records of received flows were read: what is new since began since
  double cpu_s_ = 0;            // that adding up took
};

}  // namespace cw::agent
