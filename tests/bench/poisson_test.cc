// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/poisson.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cw::bench {
namespace {

// Tables of the Poisson distribution's confidence limits.
TEST(PoissonUpperBound, IsThatOfTheTables) {
  EXPECT_NEAR(PoissonUpperBound(0, 0.95), -std::log(0.05), 1e-9);
  EXPECT_NEAR(PoissonUpperBound(1, 0.95), 4.7439, 1e-4);
  EXPECT_NEAR(PoissonUpperBound(2, 0.95), 6.2958, 1e-4);
  EXPECT_NEAR(PoissonUpperBound(5, 0.95), 10.5130, 1e-4);
  EXPECT_NEAR(PoissonUpperBound(10, 0.95), 16.9622, 1e-4);
  EXPECT_NEAR(PoissonUpperBound(0, 0.5), std::log(2), 1e-9);
  EXPECT_NEAR(PoissonUpperBound(0, 0.99), -std::log(0.01), 1e-9);
}

TEST(PoissonUpperBound, GrowsWithTheEventsAndStaysAboveThem) {
  double last = 0;
  for (const uint64_t events : {0, 1, 3, 10, 33, 100, 1000, 100000}) {
    const double bound = PoissonUpperBound(events, 0.95);
    EXPECT_GT(bound, last);
    EXPECT_GT(bound, static_cast<double>(events));
    last = bound;
  }
  EXPECT_NEAR(last, 100000 + 1.645 * std::sqrt(100000), 10);  // as a normal distribution
}

}  // namespace
}  // namespace cw::bench
