// SPDX-License-Identifier: Apache-2.0
//
// One-way delays of collectives' chunks: what processes of this host stamped goes to the senders' agents, or waits here
// for what the receivers' agents tell (userspace/profile/chunks.h). Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "userspace/agent/counter_sink.h"
#include "userspace/agent/fleet_clock/clock.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/profile/chunks.h"
#include "userspace/profile/profiles.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class Chunks {
 public:
  // All of them outlive it. local: what `fleet` is told in; monotonic: what the processes stamp with.
  Chunks(profile::Profiles& profiles, const rdma::QpRegistry& qps, const FleetClock& fleet, const Clock& local,
         const Clock& monotonic, const PairTable& pairs, const probe::Mesh& mesh, PeerMail& mail);

  void Read();  // after each reading of the profiles: what is new, and what of it has found its other half
  void Send(PairState& pair);  // arrivals that the sender's agent waits for, some times a second
  void OnArrivals(const PairState& pair, const probe::ChunkArrivals& batch);
  void TellCounts(const CounterSink& add) const;

 private:
  // nullopt: fleet time is not synchronised, or that is too long ago.
  std::optional<profile::ChunkTime> FleetTimeOf(uint32_t number, int64_t monotonic_ns) const;
  uint64_t KeepOneTimeline();  // which it is
  void HoldArrivals(const rdma::QpInfo& qp, const profile::ChunkOp& op, const std::vector<profile::ChunkTime>& times);

  profile::Profiles& profiles_;
  const rdma::QpRegistry& qps_;
  const FleetClock& fleet_;
  const Clock& local_;
  const Clock& monotonic_;
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  PeerMail& mail_;

  profile::ChunkMatcher matcher_;
  std::pair<uint64_t, uint32_t> time_;  // timeline and epoch of the fleet time of what is in matcher_
};

}  // namespace cw::agent
