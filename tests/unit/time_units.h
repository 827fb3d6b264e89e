// SPDX-License-Identifier: Apache-2.0
// Nanoseconds, for tests that move the clock by hand.
#pragma once

#include <cstdint>

namespace cw {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1000 * kMs;

}  // namespace cw
