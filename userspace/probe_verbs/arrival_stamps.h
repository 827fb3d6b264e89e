// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cw::probe_verbs {

// Who stamps what arrives.
struct ArrivalStamps {
  bool by_device = false;  // its clock is converted now
  std::string note;        // why the device's stamps are not used, in a sentence; "" where they are
  int64_t error_ns = 0;    // what the device's stamps may be off by in CLOCK_MONOTONIC: likely …
  int64_t bound_ns = 0;    // … and at most
  uint64_t stamped = 0;    // arrivals with the device's stamp
  uint64_t doubted = 0;    // whose stamp could not be right
};

}  // namespace cw::probe_verbs
