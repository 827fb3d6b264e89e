// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "userspace/agent/session_keeper.h"

namespace cw::agent {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'800'000'000;  // seconds

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
  EXPECT_EQ(At(kNow), kNow);
  EXPECT_EQ(At(kNow + 100), kNow + 100);
  EXPECT_FALSE(std::filesystem::exists(file_ + ".new"));
}

TEST_F(Session, GrowsAfterARebootWithAClockThatIsBehind) {
  ASSERT_EQ(At(kNow), kNow);
  EXPECT_EQ(At(kNow - 86'400), kNow + 1);
  EXPECT_EQ(At(0), kNow + 2) << "no clock at all";
  EXPECT_EQ(At(kNow + 60), kNow + 60);
}

TEST_F(Session, GrowsBeyondWhatTheMapsHaveAndWithinOneSecond) {
  EXPECT_EQ(At(kNow, kNow + 7), kNow + 8);
  EXPECT_EQ(At(kNow), kNow + 9);
  EXPECT_EQ(At(kNow, kNow + 5), kNow + 10);
}

TEST_F(Session, WrapsAsPeersCount) {
  EXPECT_EQ(At(kNow, UINT32_MAX), kNow) << "later by serial numbers";
  std::ofstream(file_) << UINT32_MAX << "\n";
  EXPECT_EQ(At(int64_t{UINT32_MAX} - 5), 1u) << "0 is no session";
}

TEST_F(Session, IsGoodWithoutItsFile) {
  std::filesystem::create_directories(folder_ + "/state");
  for (const char* text : {"", "\n", "x\n", "-1\n", "99999999999\n", "0\n"}) {
    std::ofstream(file_, std::ios::trunc) << text;
    SessionKeeper keeper(file_);
    EXPECT_TRUE(absl::IsDataLoss(keeper.Begin(0, kNow * kSecond, 0))) << text;
    EXPECT_EQ(keeper.session(), kNow);
    EXPECT_EQ(At(kNow - 5), kNow + 1) << "it was written anew";
  }
  std::ofstream(folder_ + "/plain") << "a file";
  SessionKeeper nowhere(folder_ + "/plain/session");
  EXPECT_FALSE(nowhere.Begin(kNow + 3, kNow * kSecond, 0).ok());
  EXPECT_EQ(nowhere.session(), kNow + 4);
}

TEST_F(Session, ANewOneIsDueWhenTheClockIsSetForward) {
  SessionKeeper keeper(file_);
  ASSERT_TRUE(keeper.Begin(0, (kNow - 3600) * kSecond, 50 * kSecond).ok());
  EXPECT_FALSE(keeper.Due((kNow - 3600 + 7) * kSecond, 57 * kSecond)) << "time passes";
  EXPECT_FALSE(keeper.Due((kNow - 3600 + 8) * kSecond, 57 * kSecond)) << "a leap second";
  EXPECT_FALSE(keeper.Due((kNow - 7200) * kSecond, 57 * kSecond)) << "set back: the session may stay";
  ASSERT_TRUE(keeper.Due(kNow * kSecond, 58 * kSecond));
  ASSERT_TRUE(keeper.Begin(keeper.session(), kNow * kSecond, 58 * kSecond).ok());
  EXPECT_EQ(keeper.session(), kNow);
  EXPECT_FALSE(keeper.Due((kNow + 1) * kSecond, 59 * kSecond));
}

}  // namespace
}  // namespace cw::agent
