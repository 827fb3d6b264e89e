// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs that are slower than the probes on their path: what the agent has at hand goes into control/delay_gap.h,
// and its verdicts become events. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/insight/cause_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/delay_gap.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class Gaps {
 public:
  // What discovery knows of the path of a slot.
  struct PathFacts {
    size_t hops = 3;
    bool ports_choose = false;  // which path a flow takes
  };
  using PathFactsOf = std::function<PathFacts(uint32_t pair, uint8_t slot)>;

  // All of them outlive it.
  Gaps(const FlowBook& flows, const PairTable& pairs, const NicTable& nics, const probe::Mesh& mesh,
       PathFactsOf path_facts, const CauseBook& causes, const PeerNames& names, EventSink& events);

  // Once a second. acts: flows are where they were steered to, not on their native ports.
  void Judge(int64_t now_ns, bool acts);
  // Nothing where it is not known.
  void Fill(const FlowKey& key, int64_t now_ns, v1::Flow& out) const;

 private:
  void Tell(const FlowKey& key, const control::GapVerdict& verdict);

  const FlowBook& flows_;
  const PairTable& pairs_;
  const NicTable& nics_;
  const probe::Mesh& mesh_;
  const PathFactsOf path_facts_;
  const CauseBook& causes_;
  const PeerNames& names_;
  EventSink& events_;

  control::GapWatch watch_;
};

}  // namespace cw::agent
