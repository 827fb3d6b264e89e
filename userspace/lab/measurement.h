// SPDX-License-Identifier: Apache-2.0
//
// The file format of every benchmark and of the demo:
//   {"name", "commit", "machine": {…}, "rows": [{"case", "system", "metric", "unit", "n", "p50", "p99", "max"}]}
// system is "cwfabric" or the peer's name. A row without values has n = 0 and null figures: it never happened.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cw::lab {

struct Measurement {
  std::string test_case;
  std::string system;
  std::string metric;
  std::string unit;
  std::vector<double> values;
};

// Creates the folder when it is missing.
absl::Status WriteMeasurements(const std::string& path, const std::string& name, const std::vector<Measurement>& rows);

}  // namespace cw::lab
