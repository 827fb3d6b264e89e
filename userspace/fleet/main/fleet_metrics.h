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
  uint64_t bytes = 0;           // of its files
  uint64_t thinned = 0;         // bytes of samples that a full disk took
  uint64_t thinned_events = 0;  // likewise, when no sample was left
  uint64_t failures = 0;
  HostLosses losses;  // of all hosts
};

// Of all hosts since the service began, one after the other.
struct HostNumbers {
  uint64_t known = 0, connected = 0, batches = 0, refused = 0, left_out = 0, detail = 0, events = 0, reports = 0;
  void Add(const LiveHost& host);
};

std::string MetricsPage(const HostNumbers& hosts, const FinderNumbers& finder, const std::vector<AlertCounts>& alerts,
                        const StoreNumbers& store);

}  // namespace cw::fleet
