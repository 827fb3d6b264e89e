// SPDX-License-Identifier: Apache-2.0
//
// Does something grow? The first third of a soak is warm-up; what is told apart are the medians of the second third and
// of the last one, so that neither a peak nor a late start decides. Pure.
#pragma once

#include <optional>
#include <vector>

namespace cw::bench {

struct Growth {
  double before = 0, last = 0;  // medians
  double Amount() const { return last - before; }
  double Percent() const { return before == 0 ? 0 : 100 * Amount() / before; }
};
// Samples at equal distances in time. None: fewer than nine.
std::optional<Growth> GrowthOf(const std::vector<double>& samples);

// What is no growth yet: both a share and an amount have to be exceeded.
struct GrowthLimit {
  double percent = 0;
  double amount = 0;
};
bool Grows(const Growth& growth, const GrowthLimit& limit);

}  // namespace cw::bench
