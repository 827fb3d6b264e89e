// SPDX-License-Identifier: Apache-2.0
//
// One-way delays of flows' own packets. A packet that both ends sample leaves a half at each: the receiver's goes to
// the sender by message, and the sender matches them (telemetry/sample_matcher.h). Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "maps/abi.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/messages.h"
#include "userspace/telemetry/sample_matcher.h"

namespace cw::agent {

class FlowSamples {
 public:
  // local: what the programs stamp with. acts: whether flows take the agent's ports. All of them outlive it.
  FlowSamples(PairTable& pairs, FlowBook& flows, const probe::Mesh& mesh, PeerMail& mail, const Clock& local,
              const Clock& monotonic, std::function<bool()> acts)
      : pairs_(pairs),
        flows_(flows),
        mesh_(mesh),
        mail_(mail),
        local_(local),
        monotonic_(monotonic),
        acts_(std::move(acts)) {}

  void OnRecord(const cw_ev_sample& sample);                             // of this host's ring
  void OnBatch(const PairState& pair, const probe::SampleBatch& batch);  // the peer's halves
  void Send(PairState& pair);                                            // what was received from it
  void Match();                                                          // into the flows' delays
  // A lost record may be the one that told of a retransmission: what is open now could match wrongly.
  void CountLost(uint64_t lost);  // of the ring, since it was made
  uint64_t lost() const { return lost_; }

 private:
  PairTable& pairs_;
  FlowBook& flows_;
  const probe::Mesh& mesh_;
  PeerMail& mail_;
  const Clock& local_;
  const Clock& monotonic_;
  const std::function<bool()> acts_;
  telemetry::SampleMatcher matcher_;
  uint64_t lost_ = 0;
};

}  // namespace cw::agent
