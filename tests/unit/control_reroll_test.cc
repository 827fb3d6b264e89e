// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/reroll.h"

#include <gtest/gtest.h>

#include <vector>

namespace cw::control {
namespace {

TailView View(uint32_t next, uint32_t acked) { return {.next = next, .acked = acked, .known = true, .can_go = true}; }

TEST(Reroll, AFlowThatIsNotAcknowledgedGetsAnotherPortAgainAndAgain) {
  RerollWatch watch;
  std::vector<int64_t> at;
  for (int64_t ms = 1; ms < 10'000; ++ms) {
    if (watch.Step(View(20, 10), ms * kMs)) at.push_back(ms - 1);
  }
  EXPECT_EQ(at, (std::vector<int64_t>{8, 24, 56, 120, 248, 504, 1016, 2040}));
  EXPECT_EQ(watch.rolls(), 8);
}

TEST(Reroll, ProgressBeginsTheWaitAnew) {
  RerollWatch watch;
  for (uint32_t ms = 1; ms < 1000; ++ms) EXPECT_FALSE(watch.Step(View(20 + ms, 10 + ms / 7), ms * kMs)) << ms;
  int64_t ms = 1000;
  while (!watch.Step(View(2000, 300), ms * kMs)) ++ms;
  EXPECT_EQ(ms, 1008);
  EXPECT_EQ(watch.rolls(), 1);
  EXPECT_FALSE(watch.Step(View(2000, 301), ++ms * kMs));
  EXPECT_EQ(watch.rolls(), 0);
  while (!watch.Step(View(2000, 301), ms * kMs)) ++ms;
  EXPECT_EQ(ms, 1009 + 8) << "not the longer wait after a first throw";
}

TEST(Reroll, NothingUnderWayAndNothingKnownIsNoSilence) {
  RerollWatch idle, unknown;
  TailView view = View(20, 10);
  view.known = false;
  for (int64_t ms = 1; ms < 1000; ++ms) {
    EXPECT_FALSE(idle.Step(View(10, 10), ms * kMs));
    EXPECT_FALSE(unknown.Step(view, ms * kMs));
  }
  EXPECT_FALSE(idle.Step(View(11, 10), 1000 * kMs)) << "sent just now";
  EXPECT_TRUE(idle.Step(View(11, 10), 1008 * kMs));
}

}  // namespace
}  // namespace cw::control
