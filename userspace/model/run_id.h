// SPDX-License-Identifier: Apache-2.0
//
// Names one run of something that numbers what it tells from 1 on: {run, number} then names each for ever. Any thread.
#pragma once

#include <cstdint>
#include <random>

namespace cw {

// Random, not 0.
inline uint64_t NewRun() {
  std::random_device device;
  uint64_t run = 0;
  while (run == 0) run = uint64_t{device()} << 32 | device();
  return run;
}

}  // namespace cw
