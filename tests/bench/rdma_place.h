// SPDX-License-Identifier: Apache-2.0
//
// Case "place" of the rdma benchmark: perftest's eight queue pairs over four spines, as the kernel's ECMP spreads them
// by the ports that soft-RoCE chose, and as libcwverbs puts them there when they connect. Each seed is a run of its own
// with other QPNs, and so other ports.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/bench_result.h"

namespace cw::bench {

// Adds the rows of the systems "ecmp" and "cwfabric" that are wanted.
absl::Status MeasurePlaces(const std::string& kernel, int seeds, const Wanted& systems, Report& report);

}  // namespace cw::bench
