// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/time_units.h"
#include "userspace/agent/session_keeper.h"

namespace cw::agent {
namespace {

constexpr int64_t kNowS = 1'800'000'000;

class Session : public ::testing::Test {
 protected:
  Session() {
    char name[] = "/tmp/cw-session-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/state/" + SessionKeeper::kFile;
  }
  ~Session() override { std::filesystem::remove_all(folder_); }
  // Of a start at that time of the wall clock.
  uint32_t At(int64_t wall_s, uint32_t pinned = 0) {
    SessionKeeper keeper(file_);
    const absl::Status kept = keeper.Begin(pinned, wall_s * kSecond, 0);
    EXPECT_TRUE(kept.ok()) << kept;
    return keeper.session();
  }
  std::string folder_, file_;
};

TEST_F(Session, IsTheWallClocksSecond) {
  EXPECT_EQ(At(kNowS), kNowS);
  EXPECT_EQ(At(kNowS + 100), kNowS + 100);
  EXPECT_FALSE(std::filesystem::exists(file_ + ".new"));
}

TEST_F(Session, GrowsAfterARebootWithAClockThatIsBehind) {
  ASSERT_EQ(At(kNowS), kNowS);
  EXPECT_EQ(At(kNowS - 86'400), kNowS + 1);
  EXPECT_EQ(At(0), kNowS + 2) << "no clock at all";
  EXPECT_EQ(At(kNowS + 60), kNowS + 60);
}

TEST_F(Session, GrowsBeyondWhatTheMapsHaveAndWithinOneSecond) {
  EXPECT_EQ(At(kNowS, kNowS + 7), kNowS + 8);
  EXPECT_EQ(At(kNowS), kNowS + 9);
  EXPECT_EQ(At(kNowS, kNowS + 5), kNowS + 10);
}

TEST_F(Session, WrapsAsPeersCount) {
  EXPECT_EQ(At(kNowS, UINT32_MAX), kNowS) << "later by serial numbers";
  std::ofstream(file_) << UINT32_MAX << "\n";
  EXPECT_EQ(At(int64_t{UINT32_MAX} - 5), 1u) << "0 is no session";
}

TEST_F(Session, IsGoodWithoutItsFile) {
  std::filesystem::create_directories(folder_ + "/state");
  for (const char* text : {"", "\n", "x\n", "-1\n", "99999999999\n", "0\n"}) {
    std::ofstream(file_, std::ios::trunc) << text;
    SessionKeeper keeper(file_);
    EXPECT_TRUE(absl::IsDataLoss(keeper.Begin(0, kNowS * kSecond, 0))) << text;
    EXPECT_EQ(keeper.session(), kNowS);
    EXPECT_EQ(At(kNowS - 5), kNowS + 1) << "it was written anew";
  }
  std::ofstream(folder_ + "/plain") << "a file";
  SessionKeeper nowhere(folder_ + "/plain/session");
  EXPECT_FALSE(nowhere.Begin(kNowS + 3, kNowS * kSecond, 0).ok());
  EXPECT_EQ(nowhere.session(), kNowS + 4);
}

TEST_F(Session, ANewOneIsDueWhenTheClockIsSetForward) {
  SessionKeeper keeper(file_);
  ASSERT_TRUE(keeper.Begin(0, (kNowS - 3600) * kSecond, 50 * kSecond).ok());
  EXPECT_FALSE(keeper.Due((kNowS - 3600 + 7) * kSecond, 57 * kSecond)) << "time passes";
  EXPECT_FALSE(keeper.Due((kNowS - 3600 + 8) * kSecond, 57 * kSecond)) << "a leap second";
  EXPECT_FALSE(keeper.Due((kNowS - 7200) * kSecond, 57 * kSecond)) << "set back: the session may stay";
  ASSERT_TRUE(keeper.Due(kNowS * kSecond, 58 * kSecond));
  ASSERT_TRUE(keeper.Begin(keeper.session(), kNowS * kSecond, 58 * kSecond).ok());
  EXPECT_EQ(keeper.session(), kNowS);
  EXPECT_FALSE(keeper.Due((kNowS + 1) * kSecond, 59 * kSecond));
}

}  // namespace
}  // namespace cw::agent
