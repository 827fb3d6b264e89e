// SPDX-License-Identifier: Apache-2.0
//
// `cwlab demo`: queue pairs that collide on a spine are spread, and a silently dead spine is left, before and after.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/lab/report.h"

namespace cw::lab {

struct DemoSpec {
  std::string out = "build/demo";  // result.json and report.html are written here
  std::vector<uint64_t> seeds = {1, 2, 3};
  double contention_s = 10;  // what the best assignment needs per seed
  int cuts = 10;
};

// Says on the standard error what it is doing.
absl::StatusOr<Report> RunDemo(const DemoSpec& spec);

}  // namespace cw::lab
