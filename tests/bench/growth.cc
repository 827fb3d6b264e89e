// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/growth.h"

#include "userspace/lab/bench_result.h"

namespace cw::bench {

std::optional<Growth> GrowthOf(const std::vector<double>& samples) {
  if (samples.size() < 9) return std::nullopt;
  const auto third = static_cast<std::ptrdiff_t>(samples.size() / 3);
  const auto end = samples.end();
  return Growth{.before = Quantile({end - 2 * third, end - third}, 0.5), .last = Quantile({end - third, end}, 0.5)};
}

bool Grows(const Growth& growth, const GrowthLimit& limit) {
  return growth.Amount() > limit.amount && growth.Amount() > growth.before * limit.percent / 100;
}

}  // namespace cw::bench
