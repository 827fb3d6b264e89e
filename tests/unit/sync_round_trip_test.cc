// SPDX-License-Identifier: Apache-2.0
//
// Whether a pair's round trips have changed: what shows it, and what does not.
#include "sync/round_trip_change.h"

#include <gtest/gtest.h>

#include <random>

namespace cw::sync {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class RoundTrips : public testing::Test {
 protected:
  // A hundred trips a second, with delays of stamps and now and then of a queue.
  template <typename LengthNs>
  void Run(double seconds, LengthNs length_ns) {
    std::exponential_distribution<double> tail(1.0 / 300);
    std::uniform_real_distribution<double> chance(0, 1);
    const int64_t until = now_ns_ + static_cast<int64_t>(seconds * kSecond), from = now_ns_;
    for (; now_ns_ < until; now_ns_ += kSecond / 100) {
      const double queue = chance(random_) < 0.1 ? 50'000 * chance(random_) : 0;
      const double at_s = static_cast<double>(now_ns_ - from) / kSecond;
      change_.Add(now_ns_, static_cast<int64_t>(length_ns(at_s) + tail(random_) + queue));
      most_ns_ = std::max(most_ns_, change_.ChangeNs());
    }
  }

  std::mt19937_64 random_{7};
  RoundTripChange change_;
  int64_t now_ns_ = kSecond;
  double most_ns_ = 0;
};

TEST_F(RoundTrips, StampsAndQueuesAreNoChange) {
  Run(300, [](double) { return 10'000.0; });
  EXPECT_LT(most_ns_, 100);
}

TEST_F(RoundTrips, SteadyGrowthShowsThoughEachSecondAddsLittle) {
  Run(15, [](double) { return 10'000.0; });
  Run(60, [](double s) { return 10'000 + 100 * s; });
  EXPECT_GT(change_.ChangeNs(), 5'000);
  EXPECT_LT(change_.ChangeNs(), 6'000);
}

TEST_F(RoundTrips, AJumpShowsEitherWayAndIsGoneWhenItIsUndone) {
  for (const double to_ns : {16'000.0, 4'000.0}) {
    change_.Reset();
    Run(15, [](double) { return 10'000.0; });
    Run(20, [&](double) { return to_ns; });
    EXPECT_GT(change_.ChangeNs(), 4'000) << to_ns;
    EXPECT_LT(change_.ChangeNs(), 6'000) << to_ns;
    Run(60, [](double) { return 10'000.0; });
    EXPECT_LT(change_.ChangeNs(), 300) << to_ns;
  }
}

TEST_F(RoundTrips, AnotherLengthIsTheUsualOneAfterALongTime) {
  Run(15, [](double) { return 10'000.0; });
  Run(3600, [](double) { return 20'000.0; });
  EXPECT_LT(change_.ChangeNs(), 300);
}

TEST_F(RoundTrips, OtherPathsAreNoChangeAndHideNone) {
  Run(15, [](double) { return 10'000.0; });
  change_.PathsChanged();
  Run(20, [](double) { return 60'000.0; });
  EXPECT_LT(most_ns_, 300);
  Run(40, [](double s) { return 60'000 + 100 * s; });
  const double grown_ns = change_.ChangeNs();
  EXPECT_GT(grown_ns, 3'000);
  change_.PathsChanged();
  EXPECT_GT(change_.ChangeNs(), 3'000) << "what was found stays";
  Run(20, [](double) { return 10'000.0; });
  EXPECT_NEAR(change_.ChangeNs(), grown_ns, 600);
}

}  // namespace
}  // namespace cw::sync
