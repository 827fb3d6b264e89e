// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/poisson.h"

#include <cmath>

namespace cw::bench {
namespace {

// Probability of `events` or fewer; terms by their logarithms, so that a large mean does not become 0.
double AtMost(uint64_t events, double mean) {
  double sum = 0;
  for (uint64_t k = 0; k <= events; ++k) {
    const auto n = static_cast<double>(k);
    sum += std::exp(n * std::log(mean) - mean - std::lgamma(n + 1));
  }
  return sum;
}

}  // namespace

double PoissonUpperBound(uint64_t events, double confidence) {
  double low = 0, high = static_cast<double>(events) + 10;
  while (AtMost(events, high) > 1 - confidence) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    if (AtMost(events, middle) > 1 - confidence) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high;
}

}  // namespace cw::bench
