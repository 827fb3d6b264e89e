// SPDX-License-Identifier: Apache-2.0
//
// What holds for all findings of one cause: how urgent they are, in which words they are told, how long a suspicion has
// to hold, and how long it has to be gone. Value types; any thread.
#pragma once

#include <array>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

enum class Severity : uint8_t { kInfo, kWarning, kCritical };
absl::string_view SeverityName(Severity severity);  // "info", "warning", "critical"

struct CauseRule {
  Severity severity = Severity::kWarning;
  std::string summary;  // {scope} stands for the place
  absl::Duration open_after = absl::Seconds(2), end_after = absl::Seconds(10);
  bool operator==(const CauseRule&) const = default;
};

// By Cause; place 0 is of no use.
using CauseRules = std::array<CauseRule, kFleetCauses + 1>;
CauseRules DefaultCauseRules();
inline const CauseRule& RuleOf(const CauseRules& rules, Cause cause) { return rules[static_cast<size_t>(cause)]; }

// The summary for this place.
std::string SummaryOf(const CauseRule& rule, absl::string_view scope);

}  // namespace cw::fleet
