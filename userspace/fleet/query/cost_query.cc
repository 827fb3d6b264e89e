// SPDX-License-Identifier: Apache-2.0
//
// What slow and standing collectives cost within a range of time, from what the store kept of them.
#include <utility>

#include "absl/strings/str_format.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/jobs_query.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kMostFindings = 10'000;
constexpr absl::Duration kMostRange = absl::Hours(24 * 31);

}  // namespace

absl::StatusOr<pb::FleetCostReply> JobsQuery::Cost(const pb::FleetCostRequest& request, int64_t now_ns) {
  const int64_t to_ns = request.to_ns() == 0 ? now_ns : request.to_ns();
  const int64_t from_ns =
      request.from_ns() == 0 ? to_ns - absl::ToInt64Nanoseconds(absl::Hours(24)) : request.from_ns();
  if (from_ns >= to_ns || to_ns - from_ns > absl::ToInt64Nanoseconds(kMostRange))
    return absl::InvalidArgumentError(
        "give a range that ends after it begins, of 31 days at most, such as --from=-24h");
  const absl::StatusOr<std::vector<HostSeen>> hosts = store_.Hosts();
  if (!hosts.ok()) return hosts.status();
  std::vector<pb::Collective> collectives;
  std::vector<ToldCollective> told;
  pb::Coverage coverage;
  coverage.set_hosts(static_cast<uint32_t>(hosts->size()));
  for (const HostSeen& host : *hosts) {
    const absl::StatusOr<WorkReply> work = store_.Work({.host = host.host, .from_ns = from_ns, .to_ns = to_ns});
    if (absl::IsDataLoss(work.status())) {
      coverage.add_missing(absl::StrFormat("%s: %s", host.host, work.status().message()));
      continue;
    }
    if (!work.ok()) return work.status();
    for (const WorkSample& sample : work->samples) {
      if (sample.time_ns > to_ns) continue;
      for (const std::string& bytes : sample.collectives) {
        pb::Collective one;
        if (!one.ParseFromString(bytes)) continue;
        if (!request.job().empty() && one.label() != request.job() && one.job_id() != request.job()) continue;
        told.push_back({host.host, nullptr, sample.time_ns});
        collectives.push_back(std::move(one));
      }
    }
  }
  for (size_t i = 0; i < told.size(); ++i) told[i].what = &collectives[i];
  const absl::StatusOr<std::vector<StoredFinding>> stored = store_.Findings({.limit = kMostFindings});
  if (!stored.ok()) return stored.status();
  std::vector<Finding> findings;
  for (const StoredFinding& one : *stored) {
    pb::FleetFinding message;
    if (!message.ParseFromString(one.body)) continue;
    absl::StatusOr<Finding> finding = FindingOf(message);
    const bool then = finding.ok() && finding->start_ns < to_ns && (finding->end_ns == 0 || finding->end_ns > from_ns);
    if (then) findings.push_back(*std::move(finding));
  }
  absl::StatusOr<View> view = Look("", 0, absl::ZeroDuration());
  if (!view.ok()) return view.status();
  pb::FleetCostReply reply = CostOf(told, findings, TopologyOf(view->work, file_));
  reply.set_from_ns(from_ns);
  reply.set_to_ns(to_ns);
  *reply.mutable_coverage() = std::move(coverage);
  return reply;
}

}  // namespace cw::fleet
