// SPDX-License-Identifier: Apache-2.0
//
// Who changed what of the fleet, or was refused: a file that is only ever appended to, as each agent has one. The
// service's log says it, too, but is rotated by others. Threads: any.
#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/acts/acts_file.h"
#include "userspace/api/audit.h"
#include "userspace/api/caller.h"

namespace cw::fleet {

class ActsLog {
 public:
  // An absolute path; "": nothing is written.
  explicit ActsLog(const std::string& path) : file_(path) {}
  // FailedPrecondition: what is in the file's place is none.
  static absl::Status Check(const std::string& path);

  // PermissionDenied: refused. Of what one caller did not bring about ten at once and one in 10 s are kept, so that he
  // washes nothing away. That it cannot be written is logged once, and the act is done all the same: a full disk must
  // not keep people from undrain.
  void Keep(const api::Caller& caller, absl::string_view call, const google::protobuf::Message& request,
            const absl::Status& result);

 private:
  const acts::ActsFile file_;
  std::atomic<bool> failed_{false};
  api::RefusalLimiter limiter_;
};

}  // namespace cw::fleet
