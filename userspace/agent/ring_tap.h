// SPDX-License-Identifier: Apache-2.0
//
// Whether measurements are recorded for the ring file, and what was since the question before. Thread rule: the agent's
// loop.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/ring_recorder.h"

namespace cw::agent {

class RingTap {
 public:
  // wall_ns: since 1970, here and below.
  void Want(bool wanted, int64_t wall_ns) {
    recorder_ = wanted ? std::make_unique<RingRecorder>() : nullptr;
    from_ns_ = wall_ns;
  }
  RingRecorder* recorder() const { return recorder_.get(); }  // null: nothing is recorded

  // The time since Want, or since the call before. The rest: RingRecorder::Take.
  absl::StatusOr<uplink::SecondSeen> Take(std::vector<uplink::PathSeen> paths, const FlowBook& flows,
                                          const PeerNames& names, int64_t wall_ns, int64_t now_ns) {
    if (recorder_ == nullptr) return absl::FailedPreconditionError("nothing is recorded");
    const uplink::Interval interval{.from_ns = std::exchange(from_ns_, wall_ns), .to_ns = wall_ns};
    return recorder_->Take(std::move(paths), flows, names, interval, now_ns);
  }

 private:
  std::unique_ptr<RingRecorder> recorder_;
  int64_t from_ns_ = 0;
};

}  // namespace cw::agent
