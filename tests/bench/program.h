// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cw::bench {

// A program's file, looked up in PATH and where daemons live. NotFound tells how to install what benchmarks need.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace cw::bench
