// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/history.h"

#include <algorithm>
#include <string>
#include <utility>

namespace cw::fleet {

absl::StatusOr<HostView> History::LatestAt(const std::string& host, int64_t id, int64_t time_ns, absl::Duration reach) {
  HostView view{.host = host};
  for (size_t tier = 0; tier < kTiers && view.paths.empty(); ++tier) {
    // Where only coarse ones are left: the interval that the time lies in ends behind it.
    const int64_t until = tier == 0 ? time_ns : time_ns + absl::ToInt64Nanoseconds(kResolution[tier]) - 1;
    absl::StatusOr<std::vector<PathSample>> samples =
        Named(id, tables_.Read(tier, id, time_ns - absl::ToInt64Nanoseconds(reach), until), std::nullopt);
    if (!samples.ok()) return samples.status();
    for (PathSample& sample : *samples) {
      if (!view.paths.empty() && view.paths.back().key == sample.key) view.paths.pop_back();
      view.paths.push_back(std::move(sample));
    }
  }
  absl::StatusOr<std::vector<Document>> documents = events_.DocumentsAt(id, time_ns);
  if (!documents.ok()) return documents.status();
  view.documents = *std::move(documents);
  return view;
}

absl::StatusOr<RangeReply> History::Range(int64_t id, const RangeQuery& query) {
  const absl::StatusOr<size_t> tier = TierFor(query);
  if (!tier.ok()) return tier.status();
  absl::StatusOr<std::vector<PathSample>> samples =
      Named(id, tables_.Read(*tier, id, query.from_ns - 1, query.to_ns - 1), query.path);
  if (!samples.ok()) return samples.status();
  return RangeReply{static_cast<Tier>(*tier), *std::move(samples)};
}

absl::StatusOr<WorkReply> History::Work(int64_t id, const WorkQuery& query) {
  size_t tier = 0;
  for (; tier + 1 < kTiers; ++tier) {
    const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(tier);
    if (!horizon.ok()) return horizon.status();
    if (query.from_ns >= *horizon) break;
  }
  // Where only coarse ones are left: the interval that the end lies in ends behind it.
  const int64_t until = tier == 0 ? query.to_ns : query.to_ns + absl::ToInt64Nanoseconds(kResolution[tier]) - 1;
  absl::StatusOr<std::vector<WorkSample>> samples = work_.Read(tier, id, query.from_ns, until);
  if (!samples.ok()) return samples.status();
  return WorkReply{static_cast<Tier>(tier), *std::move(samples)};
}

absl::StatusOr<size_t> History::TierFor(const RangeQuery& query) {
  for (size_t tier = 0; tier + 1 < kTiers; ++tier) {
    const absl::StatusOr<int64_t> horizon = tables_.HorizonNs(tier);
    if (!horizon.ok()) return horizon.status();
    const int64_t samples = (query.to_ns - query.from_ns) / absl::ToInt64Nanoseconds(kResolution[tier]);
    if (query.from_ns >= *horizon && samples <= static_cast<int64_t>(query.most_samples)) return tier;
  }
  return kTiers - 1;
}

absl::StatusOr<std::vector<PathSample>> History::Named(int64_t host,
                                                       absl::StatusOr<std::vector<NumberedSample>> samples,
                                                       const std::optional<PathKey>& only) {
  if (!samples.ok()) return samples.status();
  const auto keys = names_.Paths(host);
  if (!keys.ok()) return keys.status();
  std::vector<PathSample> named;
  for (NumberedSample& s : *samples) {
    const auto key = keys->find(s.path);
    if (key == keys->end() || (only && *only != key->second)) continue;
    s.sample.key = key->second;
    named.push_back(std::move(s.sample));
  }
  std::stable_sort(named.begin(), named.end(), [](const PathSample& a, const PathSample& b) { return a.key < b.key; });
  return named;
}

}  // namespace cw::fleet
