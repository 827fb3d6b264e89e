// SPDX-License-Identifier: Apache-2.0
#include "cli/event_filter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "userspace/commandline/command.h"
#include "userspace/model/event_types.h"

namespace cw::cli {
namespace {

bool OneOf(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

}  // namespace

const std::vector<std::string>& EventTypes() {
  static const std::vector<std::string> types(kEventTypes.begin(), kEventTypes.end());
  return types;
}

absl::Status CheckEventTypes(const std::vector<std::string>& types) {
  for (const std::string& type : types) {
    if (!OneOf(EventTypes(), type))
      return absl::InvalidArgumentError(commandline::UnknownWord("type of event", type, EventTypes()));
  }
  return absl::OkStatus();
}

bool EventFilter::Passes(const cwfabric::v1::Event& event) const {
  if (!OneOf(types, event.type()) || !OneOf(peers, event.peer())) return false;
  if (!matches.empty() && !OneOf(matches, event.flow()) && !OneOf(matches, event.peer())) return false;
  const absl::Time at = absl::FromUnixNanos(event.time_unix_ns());
  return (!since || at >= *since) && (!until || at <= *until);
}

bool EventFilter::PassesAll() const { return types.empty() && peers.empty() && matches.empty() && !since && !until; }

std::string EventFilter::Text() const {
  std::string text;
  if (!types.empty()) absl::StrAppend(&text, " of type ", absl::StrJoin(types, " or "));
  if (!peers.empty()) absl::StrAppend(&text, " about ", absl::StrJoin(peers, " or "));
  if (!matches.empty()) absl::StrAppend(&text, " that match ", absl::StrJoin(matches, " or "));
  if (since) absl::StrAppend(&text, " since ", UtcText(absl::ToUnixNanos(*since)));
  if (until) absl::StrAppend(&text, " until ", UtcText(absl::ToUnixNanos(*until)));
  return text.empty() ? text : text.substr(1);
}

absl::StatusOr<absl::Time> ParseMoment(const std::string& option, const std::string& text, absl::Time now) {
  absl::Duration ago;
  if (absl::ParseDuration(text, &ago) && ago >= absl::ZeroDuration()) return now - ago;
  std::string error;
  absl::Time at;
  for (const char* form : {"%Y-%m-%d%ET%H:%M:%E*SZ", "%Y-%m-%d%ET%H:%M:%E*S", "%Y-%m-%d%ET%H:%M", "%Y-%m-%d"}) {
    if (absl::ParseTime(form, text, absl::UTCTimeZone(), &at, &error)) return at;
  }
  const std::string day = absl::FormatTime("%Y-%m-%d ", now, absl::UTCTimeZone());
  for (const char* form : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M"}) {
    // Of a time of day that is still to come today, yesterday's is meant.
    if (absl::ParseTime(form, day + text, absl::UTCTimeZone(), &at, &error))
      return at > now ? at - absl::Hours(24) : at;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s %s: give how long ago, such as 10m, or a time in UTC, such as 16:54 or 2026-11-20T16:54:27Z", option, text));
}

}  // namespace cw::cli
