// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/journal.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/api/roles.h"

namespace cw::agent {

void Journal::Log(telemetry::Event event) {
  event.time_unix_ns = absl::GetCurrentTimeNanos();
  event.seq = log_.Add(event);
  if (write_) write_(event);
}

void Journal::LogAct(const api::Caller& caller, telemetry::Event event) {
  event.severity = telemetry::Severity::kNotice;
  if (!caller.name.empty()) {
    event.text = absl::StrCat(caller.name, ": ", event.text);
    event.evidence.insert(
        event.evidence.end(),
        {{"by", caller.name}, {"role", std::string(api::RoleName(caller.role))}, {"via", caller.via}});
  }
  Log(std::move(event));
}

}  // namespace cw::agent
