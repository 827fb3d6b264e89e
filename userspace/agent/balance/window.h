// SPDX-License-Identifier: Apache-2.0
//
// The contention window: what is seen of paths and flows, the rule's decision (control/contention.h), its recording,
// and what operators are told of it. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/control/contention.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"
#include "userspace/replay/recorder.h"

namespace cw::agent {

class ContentionWindow {
 public:
  struct Asks {
    std::function<bool(uint32_t pair)> paths_known;                       // and ports are seen to choose them
    std::function<const probe::Hops*(uint32_t pair, uint8_t slot)> hops;  // nullptr: not traced
    std::function<double()> path_bps;                                     // of each path, as configured; 0: not known
  };

  // All of them outlive it.
  ContentionWindow(control::ContentionState& rule, const PairTable& pairs, const FlowBook& flows,
                   const probe::Mesh& mesh, const PeerNames& names, BalanceMoves& moves, DryRun& dry_run,
                   EventSink& events, Asks asks)
      : rule_(rule),
        pairs_(pairs),
        flows_(flows),
        mesh_(mesh),
        names_(names),
        moves_(moves),
        dry_run_(dry_run),
        events_(events),
        asks_(std::move(asks)) {}

  // Records what is seen and decided from now on; why it cannot is an event.
  void Record(const std::string& file, uint64_t most_bytes, const replay::RecordedBy& by);

  // Ends the window that the last call began, or that `Begin` did.
  void Begin(int64_t now_ns) { began_ns_ = now_ns; }
  void Observe(int64_t now_ns);
  // In the window that ended; what is held of it before Decide is not moved.
  control::Observation& seen() { return seen_; }
  int64_t began_ns() const { return began_ns_; }
  void Decide();  // on what was observed

 private:
  control::PairObservation ObservePair(PairState& pair);
  void Add(const control::Decision& decision);
  void SetWindow();
  void Tell(const control::Finding& finding);
  void TellTrial(const control::Finding& finding);

  control::ContentionState& rule_;
  const PairTable& pairs_;
  const FlowBook& flows_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  BalanceMoves& moves_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;

  control::Observation seen_;
  int64_t began_ns_ = 0;                        // the present one
  std::unique_ptr<replay::Recorder> recorder_;  // null: not wanted
  absl::flat_hash_map<PairKey, int64_t> finding_logged_ns_;
};

}  // namespace cw::agent
