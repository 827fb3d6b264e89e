// SPDX-License-Identifier: Apache-2.0
//
// The contention rule's numbers by name, and all that the rule keeps between windows as bytes: for recordings, and to
// decide again under other rules. Pure; any thread, one per state.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/control/contention.h"

namespace cw::control {

struct NamedRule {
  const char* name;  // as in ContentionRules
  double value;
};
std::vector<NamedRule> NamedRules(const ContentionRules& rules);
// InvalidArgument: no rule is called so (the message names them all), or the value is not finite, negative, above
// 10^12, or not whole where whole windows are counted.
absl::Status SetRule(absl::string_view name, double value, ContentionRules& rules);

const ContentionRules& RulesOf(const ContentionState& state);
// From the next window on.
void SetRules(const ContentionRules& rules, ContentionState& state);

// Rules, memory and the random generator: a state restored from it decides as this one would.
std::string Snapshot(const ContentionState& state);
// InvalidArgument: not what Snapshot of this format made.
absl::StatusOr<ContentionState> Restore(absl::string_view snapshot);

}  // namespace cw::control
