// SPDX-License-Identifier: Apache-2.0
//
// The service's own figures in Prometheus' text format. Pure; values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/findings/sla_rule.h"
#include "userspace/fleet/ingest/ingest.h"

namespace cw::fleet {

// Of the search for findings.
struct FinderNumbers {
  std::array<uint64_t, kFleetCauses + 1> open{};  // by Cause; muted ones are apart
  uint64_t muted = 0;
  std::vector<SlaWord> slas;  // in the order of their rules
  uint64_t evaluations = 0;
  double evaluation_seconds = 0;  // all of them together
};

struct StoreNumbers {
  uint64_t bytes = 0;    // of its files
  uint64_t thinned = 0;  // bytes of samples that a full disk took
  uint64_t failures = 0;
  HostLosses losses;  // of all hosts
};

std::string MetricsPage(const std::vector<LiveHost>& hosts, const FinderNumbers& finder,
                        const std::vector<AlertCounts>& alerts, const StoreNumbers& store);

}  // namespace cw::fleet
