// SPDX-License-Identifier: Apache-2.0
//
// Paths that lose a share of their packets (control/path_loss.h), or data while probes pass (control/data_stall.h):
// left like dead ones, and taken back when clean, or after a time. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class Losses {
 public:
  // All of them outlive it.
  Losses(const PairTable& pairs, FlowBook& flows, const rdma::QpRegistry& qps, const probe::Mesh& mesh,
         Damping& damping, const PathLostSubscribers& lost, const Clock& monotonic, DryRun& dry_run, EventSink& events,
         May allowed)
      : pairs_(pairs),
        flows_(flows),
        qps_(qps),
        mesh_(mesh),
        damping_(damping),
        lost_(lost),
        monotonic_(monotonic),
        dry_run_(dry_run),
        events_(events),
        allowed_(std::move(allowed)) {}

  void Judge();                      // by the probes that were answered since
  void JudgeStalls(int64_t now_ns);  // by the flows' acknowledgements; once per window

 private:
  void OnLoss(PairState& pair, const control::PairLoss::Verdict& verdict);
  void OnStall(PairState& pair, const control::DataStall::Verdict& verdict);

  const PairTable& pairs_;
  FlowBook& flows_;
  const rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  Damping& damping_;
  const PathLostSubscribers& lost_;
  const Clock& monotonic_;
  DryRun& dry_run_;
  EventSink& events_;
  const May allowed_;
};

}  // namespace cw::agent
