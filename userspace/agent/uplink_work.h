// SPDX-License-Identifier: Apache-2.0
//
// What the uplink tells of the host's work: every 10 s its flows and jobs, within a second collectives that stand or
// were slow. It asks the agent as any client would. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/uplink/batch_builder.h"
#include "userspace/uplink/work_batch.h"

namespace cw::agent {

class UplinkWork {
 public:
  static constexpr absl::Duration kDetailPeriod = absl::Seconds(10), kLookPeriod = absl::Seconds(1);

  struct Asks {
    std::function<absl::StatusOr<std::vector<uplink::FlowSeen>>()> flows;
    std::function<absl::StatusOr<uplink::wire::ListJobsReply>()> jobs;
    std::function<absl::StatusOr<uplink::wire::ListCollectivesReply>()> collectives;  // slow ones
  };
  explicit UplinkWork(Asks asks) : asks_(std::move(asks)) {}

  // What the agent says, where it is time to ask it.
  struct Seen {
    bool detail = false;  // flows and jobs, too
    uplink::Interval interval;
    std::vector<uplink::FlowSeen> flows;
    uplink::wire::ListJobsReply jobs;
    uplink::wire::ListCollectivesReply collectives;
  };
  std::optional<Seen> Look(absl::Time now, uint64_t bound_ns);
  // A batch of `builder`'s run; none: there is nothing to tell.
  std::optional<uplink::wire::Batch> Tell(const Seen& seen, uplink::BatchBuilder& builder);

  void DefineAgain() { work_.DefineAgain(); }
  void AddKnown(uplink::wire::Definitions& definitions) const { work_.AddKnown(definitions); }

 private:
  void Reset(absl::Time now);

  const Asks asks_;
  uplink::WorkBatch work_;
  absl::Time detail_at_ = absl::InfinitePast(), look_at_ = absl::InfinitePast();
  absl::Time told_ = absl::InfinitePast();  // end of the interval before
  bool profiled_ = false;                   // processes tell of collectives
};

}  // namespace cw::agent
