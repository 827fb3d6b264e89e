// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs that ask for a path while they connect (libcwverbs). Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "userspace/agent/counter_sink.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/model/allowed.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class Placer {
 public:
  struct Asks {
    std::function<Allow(uint32_t pair, const rdma::QpInfo& qp)>
        allowed;                                                      // to place; off, too, where it is not configured
    std::function<bool(uint32_t pair)> paths_known;                   // and ports choose them
    std::function<bool()> assigns;                                    // the kernel's program puts new flows on paths
    std::function<rdma::KernelWord(const rdma::QpInfo& qp)> word_on;  // KernelQps::WordOn
  };

  // All of them outlive it.
  Placer(const PairTable& pairs, const NicTable& nics, const rdma::QpRegistry& qps, const OwnerMover& owners,
         const probe::Mesh& mesh, EventSink& events, Asks asks)
      : pairs_(pairs), nics_(nics), qps_(qps), owners_(owners), mesh_(mesh), events_(events), asks_(std::move(asks)) {}

  rdma::Placement Place(const rdma::QpInfo& qp, const rdma::Requester& who);
  void TellCounts(const CounterSink& add) const;

 private:
  rdma::Placement Choose(const rdma::QpInfo& qp, const rdma::Requester& who);
  bool Owns(const rdma::QpInfo& qp, const rdma::Requester& who) const;

  const PairTable& pairs_;
  const NicTable& nics_;
  const rdma::QpRegistry& qps_;
  const OwnerMover& owners_;
  const probe::Mesh& mesh_;
  EventSink& events_;
  const Asks asks_;

  std::map<cw_inproc_verdict, uint64_t> answered_;
  uint32_t turn_ = 0;  // those put on one of several
};

}  // namespace cw::agent
