// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/uplink_work.h"

#include <algorithm>
#include <utility>

namespace cw::agent {

// A clock that was set back holds nothing up for longer than a period.
void UplinkWork::Reset(absl::Time now) {
  look_at_ = std::min(look_at_, now + kLookPeriod);
  detail_at_ = std::min(detail_at_, now + kDetailPeriod);
  if (told_ > now) told_ = now - kDetailPeriod;
}

std::optional<UplinkWork::Seen> UplinkWork::Look(absl::Time now, uint64_t bound_ns) {
  Reset(now);
  if (now < look_at_ || (!profiled_ && now < detail_at_)) return std::nullopt;
  look_at_ = now + kLookPeriod;
  Seen seen;
  seen.detail = now >= detail_at_;
  const absl::Time from = told_ == absl::InfinitePast() ? now : told_;
  seen.interval = {.from_ns = absl::ToUnixNanos(from), .to_ns = absl::ToUnixNanos(now), .bound_ns = bound_ns};
  if (seen.detail) {
    detail_at_ = now + kDetailPeriod;
    absl::StatusOr<std::vector<uplink::FlowSeen>> flows = asks_.flows();
    absl::StatusOr<uplink::wire::ListJobsReply> jobs = asks_.jobs();
    if (!flows.ok() || !jobs.ok()) return std::nullopt;  // the agent ends
    told_ = now;
    seen.flows = *std::move(flows);
    seen.jobs = *std::move(jobs);
    profiled_ = std::any_of(seen.jobs.jobs().begin(), seen.jobs.jobs().end(),
                            [](const uplink::wire::Job& job) { return !job.ended(); });
  }
  if (!profiled_) return seen;
  absl::StatusOr<uplink::wire::ListCollectivesReply> collectives = asks_.collectives();
  if (collectives.ok()) seen.collectives = *std::move(collectives);
  return seen;
}

std::optional<uplink::wire::Batch> UplinkWork::Tell(const Seen& seen, uplink::BatchBuilder& builder) {
  uplink::wire::Batch told;
  const auto number = [&builder](const uplink::FlowSeen& flow) {
    return flow.path_port == 0 ? 0 : builder.FindPath(flow.key.src, flow.key.dst, flow.path_port);
  };
  if (seen.detail) work_.Detail(seen.flows, seen.jobs, number, told);
  work_.Collectives(seen.collectives, seen.detail, told);
  if (told.flows().empty() && !told.has_other_flows() && told.jobs().empty() && told.collectives().empty())
    return std::nullopt;
  told.MergeFrom(builder.Begin(seen.interval));
  return told;
}

}  // namespace cw::agent
