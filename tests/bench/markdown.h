// SPDX-License-Identifier: Apache-2.0
//
// A benchmark's result as docs/benchmarks.md shows it. Pure.
#pragma once

#include <string>

#include "userspace/lab/bench_result.h"

namespace cw::bench {

// One line per system and metric, one column per case, "p50 / p99 / max" in each cell; one number where the three are
// the same, "never" where n is 0, "–" where a case lacks the metric. Lines and columns stand as first met.
std::string Markdown(const Report& report);

}  // namespace cw::bench
