// SPDX-License-Identifier: Apache-2.0
// The time by which orders end: of a clock that is kept right, or of what ran.
#include "userspace/fleet/drains/order_clock.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace cw::fleet {
namespace {

class OrderClockTest : public ::testing::Test {
 protected:
  OrderClock::Reads Reads() {
    return {.wall_ns = [this] { return wall_ns_; },
            .steady = [this] { return steady_; },
            .synchronised = [this] { return synchronised_; }};
  }
  int64_t wall_ns_ = 5000;
  absl::Time steady_ = absl::UnixEpoch();
  bool synchronised_ = false;
};

TEST_F(OrderClockTest, BeginsWithWhatTheStoreKnowsAndCountsWhatRan) {
  OrderClock clock(700, Reads());
  EXPECT_EQ(clock.NowNs(), 700);
  wall_ns_ = 1;
  steady_ += absl::Nanoseconds(50);
  EXPECT_EQ(clock.NowNs(), 750);
  EXPECT_EQ(clock.NowNs(), 750) << "no time ran";
}

// A host whose clock was ahead together with the service's left times that are to come.
TEST_F(OrderClockTest, TimesToComeInTheStoreAreNotBelieved) {
  OrderClock clock(9'000'000, Reads());
  EXPECT_EQ(clock.NowNs(), 5000);
}

TEST_F(OrderClockTest, FollowsAClockThatIsKeptRightAndGoesOnFromItOnceItIsNot) {
  OrderClock clock(700, Reads());
  synchronised_ = true;
  EXPECT_EQ(clock.NowNs(), 5000) << "what ran while the service was not there counts";
  synchronised_ = false;
  wall_ns_ = 1'000'000;
  steady_ += absl::Nanoseconds(10);
  EXPECT_EQ(clock.NowNs(), 5010) << "somebody set it";
}

TEST_F(OrderClockTest, AnEmptyStoreLeavesTheWallClock) {
  OrderClock clock(0, Reads());
  EXPECT_EQ(clock.NowNs(), 5000);
}

TEST_F(OrderClockTest, PeopleSeeTheirWallClock) {
  OrderClock clock(700, Reads());
  EXPECT_EQ(clock.WallOf(800), 5100);
  EXPECT_EQ(clock.WallOf(0), 0) << "no end";
}

TEST(OrderClockOfSystem, Runs) {
  OrderClock clock(0);
  const int64_t first = clock.NowNs();
  EXPECT_GE(clock.NowNs(), first);
}

}  // namespace
}  // namespace cw::fleet
