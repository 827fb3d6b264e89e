// SPDX-License-Identifier: Apache-2.0
//
// What a host's processes do at a moment, from the samples up to it: of now, or of then with samples of the store.
// Bounded whatever comes. A value type; times are the host's, ns since 1970.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

class LiveWork {
 public:
  static constexpr absl::Duration kFlowsHold = absl::Seconds(25);  // agents tell each 10 s
  static constexpr absl::Duration kJobsHold = absl::Seconds(75);   // agents tell each 60 s at least
  static constexpr absl::Duration kCollectivesHold = absl::Minutes(5);
  static constexpr size_t kMostJobs = 1024, kMostCollectives = 128;

  struct Job {
    int64_t time_ns = 0;
    cwfabric::v1::Job job;
  };
  struct Collective {
    int64_t time_ns = 0;
    cwfabric::v1::Collective collective;
  };

  // In order of their times.
  void Add(const WorkSample& sample);
  // What does not hold any more at this time goes.
  void Forget(int64_t now_ns);

  // The newest interval with flows; its jobs and collectives are not of interest.
  const WorkSample& flows() const { return flows_; }
  const std::map<std::string, Job>& jobs() const { return jobs_; }  // by JobSample.key; those that ended, too
  // The newest word of each that was slow or stands, by what names it.
  const std::map<std::string, Collective>& collectives() const { return collectives_; }

 private:
  WorkSample flows_;
  std::map<std::string, Job> jobs_;
  std::map<std::string, Collective> collectives_;
};

}  // namespace cw::fleet
