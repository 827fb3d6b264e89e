// SPDX-License-Identifier: Apache-2.0
//
// Why flows are slow: what the agent has at hand goes into the book of causes once per window; its verdicts become
// events. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns. Source of the rule: control/causes.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/insight/cause_book.h"
#include "userspace/agent/insight/wire_gaps.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/peer_names.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/pair_store.h"

namespace cw::agent {

class Causes {
 public:
  // The record of a flow that this host receives, as the map has it.
  using ReceivedRecord = std::function<absl::StatusOr<cw_flow>(const FlowKey&)>;

  // The label of the process that sends it, or else its name; "": not known.
  using JobOfFlow = std::function<std::string(const FlowKey&)>;

  // Those whose process has posted work that a collective waits for.
  using Awaited = std::function<absl::flat_hash_set<FlowKey>(int64_t now_ns)>;

  // All of them outlive it.
  Causes(const FlowBook& flows, const PairTable& pairs, const NicTable& nics, const probe::Mesh& mesh,
         probe::PairStore& store, ReceivedRecord received, JobOfFlow job_of, Awaited awaited, const PeerNames& names,
         PeerMail& mail, EventSink& events);

  // Not wanted: nothing is looked at, and nothing is told.
  void SetRules(bool wanted, const control::CauseRules& rules);

  void Answered(uint32_t pair, uint8_t slot);  // a probe of ours
  // Once per decision window, in this order. Hold: what no move cures stays where it is.
  void Look(const control::Observation& seen);
  void Hold(control::Observation& seen) const;
  // Once a second. ring_losses: records of probes lost so far; where some were, nobody is blamed for missing ones.
  void Judge(int64_t now_ns, uint64_t ring_losses);

  // The peer asks about flows that it sends, or answers us.
  void OnGapReport(PairState& pair, const probe::GapReport& report, int64_t now_ns);
  void OnPeersPathDied(const PairState& pair, const probe::PathDeath& death);
  void Forget(uint32_t pair) { book_.Forget(pair); }

  const CauseBook& book() const { return book_; }

 private:
  void Tell(const control::CauseVerdict& verdict);

  const FlowBook& flows_;
  const PairTable& pairs_;
  const NicTable& nics_;
  const probe::Mesh& mesh_;
  probe::PairStore& store_;
  const ReceivedRecord received_;
  const JobOfFlow job_of_;
  const Awaited awaited_;
  const PeerNames& names_;
  PeerMail& mail_;
  EventSink& events_;

  bool wanted_ = false;
  CauseBook book_;
  WireGaps wire_gaps_;
  int64_t judged_ns_ = 0;
  uint64_t ring_losses_ = 0;  // when it judged last
};

}  // namespace cw::agent
