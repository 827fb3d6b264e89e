// SPDX-License-Identifier: Apache-2.0
// What the files of PairEstimator go by together. Private to sync/.
#pragma once

#include <cstdint>

namespace cw::sync {

inline constexpr int64_t kYoungNs = 120'000'000;     // a younger line is fitted to milliseconds
inline constexpr int64_t kBendReachNs = 60'000'000;  // a change is looked for so long before it showed
inline constexpr double kSettledSpanNs = 600e6, kYoungToleranceNs = 1500;
inline constexpr double kRttWanderNs = 300;  // the fastest round trips vary by so much without a queue
inline constexpr double kNothing = 1e15;     // an interval's end that nothing bounds

}  // namespace cw::sync
