// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/events_file.h"

#include "absl/strings/str_cat.h"

namespace cw::agent {

void EventsFile::Look() {
  const std::string error = journal_.log().file_error();
  if (error.empty() == !fails_) return;
  fails_ = !error.empty();
  telemetry::Event event{.type = "agent"};
  event.severity = fails_ ? telemetry::Severity::kAlert : telemetry::Severity::kNotice;
  event.text =
      fails_ ? absl::StrCat("events cannot be written to ", file_, " (", error, "): make room; cwctl events has them")
             : absl::StrCat("events are written to ", file_, " again; those in between are missing there");
  journal_.Log(std::move(event));
}

}  // namespace cw::agent
