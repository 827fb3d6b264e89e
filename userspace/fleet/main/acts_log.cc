// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/acts_log.h"

#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace cw::fleet {

absl::Status ActsLog::Check(const std::string& path) {
  const std::string fault = acts::ActsFile(path).NoFile();
  return fault.empty() ? absl::OkStatus() : absl::FailedPreconditionError("acts_file: " + fault);
}

void ActsLog::Keep(const api::Caller& caller, absl::string_view call, const google::protobuf::Message& request,
                   const absl::Status& result) {
  if (!result.ok() && !limiter_.Tell(caller.name, absl::Now())) return;
  const acts::Act act = api::ActOf(caller, call, request.ShortDebugString(), result);
  const std::string fault = file_.Append(act, absl::GetCurrentTimeNanos());
  if (failed_.exchange(!fault.empty()) == !fault.empty()) return;
  if (fault.empty())
    spdlog::warn("who changes what is kept again");
  else
    spdlog::error("who changes what is not kept: {}", fault);
}

}  // namespace cw::fleet
