// SPDX-License-Identifier: Apache-2.0
#include "cli/offline.h"

#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "maps/names.h"
#include "userspace/acts/acts_file.h"
#include "userspace/off/control.h"
#include "userspace/off/detach.h"

namespace cw::cli {

std::string CtlPinPath(const std::string& instance) {
  return off::ControlPin(absl::StrFormat("%s/%s", CW_PIN_ROOT, instance));
}

absl::Status SwitchOffWithoutAgent(const std::string& instance) {
  if (!off::IsInstanceName(instance)) {
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is no instance's name", instance));
  }
  const off::Switched switched = off::SwitchOff(CtlPinPath(instance), /*dry=*/false);
  switch (switched.outcome) {
    case off::Switched::Outcome::kDone:
      return absl::OkStatus();
    case off::Switched::Outcome::kNoPin:
      return absl::NotFoundError(switched.message);
    case off::Switched::Outcome::kNotPermitted:
      return absl::PermissionDeniedError(switched.message);
    case off::Switched::Outcome::kUnknownMap:
      return absl::FailedPreconditionError(switched.message);
    case off::Switched::Outcome::kFailed:
      break;
  }
  return absl::InternalError(switched.message);
}

void KeepAct(const std::string& instance, const std::string& what) {
  const acts::ActsFile file(acts::DefaultPath(instance));
  if (!file.HasFolder()) return;
  const std::string fault =
      file.Append(acts::ByThisProcess(what, "no agent answered in time"), absl::GetCurrentTimeNanos());
  if (!fault.empty()) std::cerr << "cwctl: not kept who did this: " << fault << '\n';
}

}  // namespace cw::cli
