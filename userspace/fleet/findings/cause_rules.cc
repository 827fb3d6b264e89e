// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/cause_rules.h"

#include "absl/strings/str_replace.h"

namespace cw::fleet {

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kCritical:
      return "critical";
  }
  return "unknown";
}

CauseRules DefaultCauseRules() {
  CauseRules rules;
  const auto set = [&](Cause cause, Severity severity, std::string summary, double open_s, double end_s) {
    rules[static_cast<size_t>(cause)] = {severity, std::move(summary), absl::Seconds(open_s), absl::Seconds(end_s)};
  };
  set(Cause::kLinkDead, Severity::kWarning, "{scope} is dead", 1.2, 10);
  set(Cause::kLinkGrey, Severity::kWarning, "{scope} loses packets", 11, 30);  // two intervals
  set(Cause::kSwitchDead, Severity::kCritical, "{scope} forwards nothing", 1.2, 10);
  set(Cause::kHostDown, Severity::kCritical, "{scope} is down", 2, 10);
  set(Cause::kAgentGone, Severity::kWarning, "the agent of {scope} is gone", 2, 10);
  set(Cause::kNicDown, Severity::kCritical, "{scope} is down", 1.2, 10);
  set(Cause::kFlapping, Severity::kWarning, "{scope} has flapped too often within the past hour", 0, 10);
  set(Cause::kSwapped, Severity::kWarning, "{scope} are not plugged in as planned", 3, 60);
  set(Cause::kCongestion, Severity::kInfo, "{scope} is congested", 3, 30);
  set(Cause::kIncast, Severity::kInfo, "too many senders for one NIC: {scope}", 3, 30);
  set(Cause::kSlowReceiver, Severity::kWarning, "{scope} receives too slowly", 25, 10);  // an incast shows by then
  set(Cause::kSlowSender, Severity::kInfo, "{scope} sends too slowly", 5, 10);
  set(Cause::kClock, Severity::kWarning, "the clock of {scope} is wrong", 2, 10);
  set(Cause::kSla, Severity::kWarning, "{scope} is not kept", 15, 60);
  set(Cause::kClassPaused, Severity::kWarning, "one traffic class does not get through at {scope}", 2, 10);
  set(Cause::kConfiguration, Severity::kWarning, "{scope} is not set as its peers are", 30, 10);
  set(Cause::kNotNetwork, Severity::kInfo, "{scope} stands, and not because of the network", 5, 10);
  set(Cause::kRailDown, Severity::kCritical, "{scope} forwards nothing", 1.2, 10);
  set(Cause::kPathsDead, Severity::kWarning, "{scope} are dead, and the cause is not known", 5, 10);
  set(Cause::kHostBusy, Severity::kWarning, "{scope} is too busy to measure", 30, 10);
  set(Cause::kReportsRefused, Severity::kWarning, "the reports of {scope} do not count", 15, 10);
  set(Cause::kNicNotMeasured, Severity::kWarning, "{scope} is not measured, as its own agent reports", 2, 10);
  set(Cause::kPacketSize, Severity::kCritical, "{scope} does not carry packets of full size", 1.2, 10);
  return rules;
}

std::string SummaryOf(const CauseRule& rule, absl::string_view scope) {
  return absl::StrReplaceAll(rule.summary, {{"{scope}", scope}});
}

}  // namespace cw::fleet
