// SPDX-License-Identifier: Apache-2.0
//
// For benchmarks' own programs: what fails ends the run, with processes and folders that it made taken away. Any thread
// whose caller catches Failed.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::bench {

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void Must(const absl::Status& status) {
  if (!status.ok()) throw Failed(status.ToString());
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

inline int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace cw::bench
