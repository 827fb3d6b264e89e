// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/live_work.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

// Sends and receives have no number: those to one rank are one.
std::string NameOfCollective(const cwfabric::v1::Collective& c) {
  return absl::StrCat(c.job_id(), "/", c.pid(), "/", c.rank(), "/", c.function(), "/", c.seq(), "/", c.peer());
}

template <typename Map>
void DropOldest(Map& map, size_t most) {
  while (map.size() > most) {
    map.erase(std::min_element(map.begin(), map.end(),
                               [](const auto& a, const auto& b) { return a.second.time_ns < b.second.time_ns; }));
  }
}

template <typename Map>
void DropBefore(Map& map, int64_t before_ns) {
  std::erase_if(map, [&](const auto& entry) { return entry.second.time_ns < before_ns; });
}

}  // namespace

void LiveWork::Add(const WorkSample& sample) {
  if (!sample.flows.empty() || sample.other_flows > 0) {
    flows_ = sample;
    flows_.jobs.clear();
    flows_.collectives.clear();
  }
  for (const JobSample& job : sample.jobs) {
    Job told{.time_ns = sample.time_ns, .job = {}};
    if (told.job.ParseFromString(job.bytes)) jobs_[job.key] = std::move(told);
  }
  for (const std::string& bytes : sample.collectives) {
    Collective told{.time_ns = sample.time_ns, .collective = {}};
    if (!told.collective.ParseFromString(bytes)) continue;
    std::string name = NameOfCollective(told.collective);
    collectives_[std::move(name)] = std::move(told);
  }
  DropOldest(jobs_, kMostJobs);
  DropOldest(collectives_, kMostCollectives);
}

void LiveWork::Forget(int64_t now_ns) {
  if (flows_.time_ns < now_ns - absl::ToInt64Nanoseconds(kFlowsHold)) flows_ = {};
  DropBefore(jobs_, now_ns - absl::ToInt64Nanoseconds(kJobsHold));
  DropBefore(collectives_, now_ns - absl::ToInt64Nanoseconds(kCollectivesHold));
  // One that stands is told again each 10 s: it does no more.
  std::erase_if(collectives_, [&](const auto& entry) {
    return entry.second.collective.state() == cwfabric::v1::Collective::STATE_STALLED &&
           entry.second.time_ns < now_ns - absl::ToInt64Nanoseconds(kFlowsHold);
  });
}

}  // namespace cw::fleet
