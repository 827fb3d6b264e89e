// SPDX-License-Identifier: Apache-2.0
//
// What people should hear of fleet time: synchronised, refused, lost, stepped, another timeline, a neighbour that
// contradicts the majority. Each once, when it has lasted, with the numbers that it rests on. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sync/agreement.h"
#include "userspace/telemetry/event_log.h"

namespace cw::agent {

// "4fd1c02a77e6b010"; "" for 0.
std::string TimelineName(uint64_t timeline);

// Why fleet time is not synchronised, one sentence; "" when it is.
std::string TroubleText(const sync::FleetTime& time);

class ClockEvents {
 public:
  // After each round. views: what went into it, in the order of verdicts.
  std::vector<telemetry::Event> Look(int64_t now_ns, const sync::FleetTime& time, uint64_t timeline,
                                     absl::Span<const sync::NeighbourView> views,
                                     absl::Span<const sync::NeighbourVerdict> verdicts);

  // The same for anchors: those that contradict each other so that TAI is unknown, those that step, and those that
  // smear a leap second.
  void LookAtAnchors(absl::Span<const sync::AnchorVerdict> anchors, bool tai_known, std::vector<telemetry::Event>& out);

 private:
  void LookAtSmears(absl::Span<const sync::AnchorVerdict> anchors, std::vector<telemetry::Event>& out);

  struct Watched {
    int rounds = 0;  // in a row in which it was, or was not, a false ticker
    bool named = false;
  };

  void LookAtState(int64_t now_ns, const sync::FleetTime& time, uint64_t timeline,
                   absl::Span<const sync::NeighbourVerdict> verdicts, std::vector<telemetry::Event>& out);
  void LookAtEpoch(int64_t now_ns, const sync::FleetTime& time, uint64_t timeline, std::vector<telemetry::Event>& out);
  void LookAtNeighbours(absl::Span<const sync::NeighbourView> views, absl::Span<const sync::NeighbourVerdict> verdicts,
                        std::vector<telemetry::Event>& out);

  sync::FleetTime told_;  // as it was when it was told last
  uint64_t told_timeline_ = 0;
  sync::FleetTime last_;  // of the last round
  std::map<std::string, Watched> watched_;
  int anchors_rounds_ = 0;
  bool anchors_contradict_ = false;
  std::set<uint64_t> stepped_;  // anchors
  int smears_rounds_ = 0;
  std::string smears_;  // names, as told
};

}  // namespace cw::agent
