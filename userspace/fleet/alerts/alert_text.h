// SPDX-License-Identifier: Apache-2.0
//
// Findings as JSON: alerts of Alertmanager's API v2, and what webhooks get. Pure; any thread.
//
// Source of the fields: Alertmanager's OpenAPI description (api/v2/openapi.yaml, postableAlert).
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/fleet/findings/cause_rules.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

struct AlertWords {
  CauseRules rules = DefaultCauseRules();
  std::string runbook_url;  // "" = none; the cause is appended as "#link-dead"
};

// The body of POST /api/v2/alerts. The labels are cause, scope and severity, the same from every instance of the
// service. What goes on is good until `until`, unless it is sent again.
std::string AlertmanagerBody(const std::vector<Finding>& findings, const AlertWords& words, absl::Time until);

// {"status": "open" or "over", "severity", "summary", "runbook_url", "finding": as cwctl fleet findings --json has it}
std::string WebhookBody(const Finding& finding, const AlertWords& words);

}  // namespace cw::fleet
