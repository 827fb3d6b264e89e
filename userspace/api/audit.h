// SPDX-License-Identifier: Apache-2.0
//
// What is told of a call that changes something, or that was refused. Pure, but for the limiter's lock.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/acts/acts_file.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/caller.h"

namespace cw::api {

// A changing call that was let through, and what came of it. `request` is the request's text, which is shortened.
ApiEvent CallMade(const Caller& caller, absl::string_view call, const std::string& request, const absl::Status& result);

// For the file of acts. PermissionDenied: refused.
acts::Act ActOf(const Caller& caller, absl::string_view call, const std::string& request, const absl::Status& result);

// One that was not, and how many refusals of the same caller were not told since the last that was.
ApiEvent CallRefused(const Caller& caller, absl::string_view call, const std::string& request, const std::string& why,
                     uint64_t untold);

// Refusals are told at most ten times at once and once in 10 s for each caller, so that no caller can fill the log, or
// hide another's refusals behind its own. Any thread.
class RefusalLimiter {
 public:
  explicit RefusalLimiter(size_t most_callers = 256) : most_callers_(most_callers) {}  // more share one bucket
  // Tell: how many were not told since. Nothing: do not tell.
  std::optional<uint64_t> Tell(const std::string& who, absl::Time now);

 private:
  struct Bucket {
    double tokens = kBurst;
    absl::Time at;
    uint64_t untold = 0;
  };
  static constexpr double kBurst = 10;
  static constexpr double kPerSecond = 0.1;

  const size_t most_callers_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace cw::api
