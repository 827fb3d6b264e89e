// SPDX-License-Identifier: Apache-2.0
//
// The few paths and flows that get series of their own, where the configuration wants them. Pure.
#pragma once

#include <vector>

#include "userspace/metrics/snapshot.h"

namespace cw::metrics {

// Those that answered within the last 10 s, by queueing delay (p99) and then loss, the worst first.
std::vector<WorstPath> WorstPaths(const v1::PathsReply& paths, size_t most);
// Those sent, by rate, the fastest first.
std::vector<TopFlow> TopFlows(const v1::QpsReply& qps, size_t most);

}  // namespace cw::metrics
