// SPDX-License-Identifier: Apache-2.0
//
// What a host's flows, jobs and collectives were, as parts of a batch: differences to the time before, names once, and
// nothing where nothing happened. 64 flows with their delays cost some 200 bytes/s (uplink_work_test holds them to
// 400). Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/uplink/seen.h"

namespace cw::uplink {

namespace wire = ::cwfabric::v1;

class WorkBatch {
 public:
  static constexpr size_t kMostFlows = 256;         // of an interval, by bytes; the rest is a sum
  static constexpr uint32_t kMostNumbers = 20'000;  // of flows in a run
  static constexpr size_t kMostKnown = 4096;        // names at once
  static constexpr uint64_t kForgetName = 360;      // calls without traffic
  static constexpr size_t kMostJobs = 256;
  static constexpr size_t kCollectiveBytes = 64 << 10;    // of all between two details …
  static constexpr size_t kOneCollectiveBytes = 8 << 10;  // … and of one, whose peers with the shortest waits go first
  static constexpr int kTellAgain = 6;                    // details until an idle job is told anew

  // A path's number in the run; 0: not known.
  using PathNumber = std::function<uint32_t(const FlowSeen&)>;

  // Flows with traffic since the call before, jobs that changed. What is there at the first call counts from then on.
  void Detail(absl::Span<const FlowSeen> flows, const wire::ListJobsReply& jobs, const PathNumber& number,
              wire::Batch& batch);
  // Collectives that stand, or were slow, and were not told yet; `again`: those that stand in any case.
  void Collectives(const wire::ListCollectivesReply& reply, bool again, wire::Batch& batch);
  // The service knows none of the flows' names any more.
  void DefineAgain();
  // All names, for batches that were made before.
  void AddKnown(wire::Definitions& definitions) const;
  uint64_t left_out() const { return left_out_; }  // jobs and collectives without room

 private:
  struct Flow {
    uint64_t bytes = 0, retransmits = 0, ce = 0, cnps = 0;  // when it was told last
    wire::FlowName name;                                    // number 0: it has none yet
    bool posted = false;                                    // of what `bytes` counts
    bool told = false;
    uint64_t seen = 0;   // call
    uint64_t named = 0;  // call when a record named it last
  };
  struct Change {
    const FlowSeen* seen = nullptr;
    Flow* flow = nullptr;
    uint64_t bytes = 0, retransmits = 0, ce = 0, cnps = 0;
  };
  struct Job {
    std::string told;
    int ago = 0;  // details
    uint64_t seen = 0;
  };

  static void Rebase(Flow& flow, const FlowSeen& seen);
  std::vector<Change> Changes(absl::Span<const FlowSeen> flows);
  void AddFlow(const Change& change, const PathNumber& number, wire::Batch& batch);
  uint32_t NumberOf(Flow& flow);  // 0: there is none left
  void Free(Flow& flow);
  void AddJobs(const wire::ListJobsReply& jobs, wire::Batch& batch);

  absl::flat_hash_map<FlowKey, Flow> flows_;
  uint32_t numbers_ = 0;        // given out so far
  std::deque<uint32_t> freed_;  // the one that was free for longest first: old batches may still name it
  std::map<std::string, Job> jobs_;
  std::set<std::string> told_;  // collectives
  size_t collective_bytes_ = 0;
  uint64_t call_ = 0, left_out_ = 0;
};

}  // namespace cw::uplink
