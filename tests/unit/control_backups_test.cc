// SPDX-License-Identifier: Apache-2.0
// Where flows of a dead path go first.
#include "userspace/control/backups.h"

#include <gtest/gtest.h>

#include <vector>

namespace cw::control {
namespace {

// Four spines; every path ends with the same link to the peer's leaf.
std::vector<PathObservation> Paths() {
  std::vector<PathObservation> paths;
  for (uint8_t s = 0; s < 4; ++s) {
    paths.push_back({.slot = s, .usable = true, .queue_samples = 10, .queue_ns = 10'000, .links = {100u + s, 7}});
  }
  return paths;
}

TEST(Backups, AllOtherPathsWhereTheyAreAlike) {
  Backups backups;
  const auto masks = backups.Step(Paths());
  EXPECT_EQ(masks[0], 0b1110);
  EXPECT_EQ(masks[2], 0b1011);
  EXPECT_EQ(masks[4], 0) << "no path";
}

TEST(Backups, NoneThatIsNotUsable) {
  auto paths = Paths();
  paths[1].usable = false;  // dead, damped or drained: its flows may still go elsewhere
  const auto masks = Backups().Step(paths);
  EXPECT_EQ(masks[0], 0b1100);
  EXPECT_EQ(masks[1], 0b1101);
}

TEST(Backups, ThoseThatShareTheFewestLinks) {
  auto paths = Paths();
  paths[1].links = {100, 7};  // over slot 0's spine
  const auto masks = Backups().Step(paths);
  EXPECT_EQ(masks[0], 0b1100);
  EXPECT_EQ(masks[2], 0b1011);
  paths[2].usable = paths[3].usable = false;
  EXPECT_EQ(Backups().Step(paths)[0], 0b0010) << "better than none";
}

TEST(Backups, ALinkWithLessRoomIsLeftOutWhileItQueues) {
  Backups backups;
  auto paths = Paths();
  paths[3].queue_ns = 900'000;
  backups.Step(paths);
  for (int i = 0; i < 20; ++i) backups.Step(paths);
  EXPECT_EQ(backups.Step(paths)[0], 0b0110);
  paths[3].queue_ns = 20'000;
  paths[0].queue_samples = 0;  // nothing was seen of it: as before
  for (int i = 0; i < 40; ++i) backups.Step(paths);
  EXPECT_EQ(backups.Step(paths)[0], 0b1110);
}

TEST(Backups, OneWindowsBurstChangesNothing) {
  Backups backups;
  auto paths = Paths();
  for (int i = 0; i < 20; ++i) backups.Step(paths);
  paths[3].queue_ns = 300'000;
  EXPECT_EQ(backups.Step(paths)[0], 0b1110);
}

}  // namespace
}  // namespace cw::control
