// SPDX-License-Identifier: Apache-2.0
//
// rules.toml: how urgent each cause is and in which words it is told, thresholds, how long it has to hold and to be
// gone; and tests of it: what happens in a small fabric, and which alerts are wanted. Pure; value types.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/fleet/findings/findings.h"

namespace cw::fleet {

// A fault that lasts for so long, in a fabric of three leaves, two spines and nine hosts that are well.
struct RuleTest {
  std::string name, at;  // at: "file:line"
  Cause fault = Cause::kLinkDead;
  bool none = false;  // no fault
  absl::Duration lasts = absl::Seconds(30);
  int flaps = 1;                                   // so often, 25 s apart; `lasts` does not count then
  double loss = 0.05;                              // of "link grey"
  absl::Duration queue = absl::Microseconds(100);  // of "congestion" and "incast"
  std::vector<std::string> expect;                 // "CAUSE: SEVERITY", each finding that opens
  std::string summary;                             // of one of them; "" = any
};

struct Rules {
  FindingRules findings;
  std::vector<SlaRule> slas;
  std::vector<RuleTest> tests;
};

// InvalidArgument: all faults, each with file and line. What does not stand there is as in DefaultRulesToml.
absl::StatusOr<Rules> ReadRules(absl::string_view text, absl::string_view file);
// Every key with its default and what it means, and tests.
std::string DefaultRulesToml();
// What went wrong, a line each; none: all tests are as expected. small_fleet.cc
std::vector<std::string> RunRuleTests(const Rules& rules);

}  // namespace cw::fleet
