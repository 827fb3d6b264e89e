// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/drains.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cw::agent {
namespace {

class DrainsFile : public ::testing::Test {
 protected:
  DrainsFile() {
    char name[] = "/tmp/cw-drains-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/drains.json";
  }
  ~DrainsFile() override { std::filesystem::remove_all(folder_); }

  static DrainEntry Entry() {
    DrainEntry entry{.kind = control::DrainKind::kSpine, .what = "10.1.0.0", .since_ns = 5, .until_ns = 7, .now = true};
    entry.ports[{Addr::FromV4(1), Addr::FromV4(2)}] = {49153, 49160};
    entry.moved[{Addr::FromV4(1), Addr::FromV4(2), 0x11}] = {.from = 0, .to = 49154};
    return entry;
  }

  std::string folder_, file_;
};

TEST_F(DrainsFile, TheNextAgentKeepsFreeWhatThisOneDid) {
  Drains drains(file_, "boot");
  drains.entries()["10.1.0.0"] = Entry();
  drains.Changed();
  ASSERT_TRUE(drains.Save().ok());
  Drains next(file_, "boot");
  ASSERT_TRUE(next.Load().ok());
  ASSERT_EQ(next.entries().size(), 1u);
  const DrainEntry& entry = next.entries().at("10.1.0.0");
  EXPECT_EQ(entry.kind, control::DrainKind::kSpine);
  EXPECT_EQ(entry.since_ns, 5);
  EXPECT_EQ(entry.until_ns, 7);
  EXPECT_TRUE(entry.now);
  EXPECT_EQ(entry.ports, Entry().ports);
  EXPECT_EQ(entry.moved, Entry().moved);
  next.entries().clear();
  next.Changed();
  ASSERT_TRUE(next.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(DrainsFile, AnotherBootAndRubbishAreNotRead) {
  Drains drains(file_, "boot");
  EXPECT_TRUE(absl::IsNotFound(drains.Load()));
  drains.entries()["10.1.0.0"] = Entry();
  drains.Changed();
  ASSERT_TRUE(drains.Save().ok());
  Drains other(file_, "another boot");
  EXPECT_TRUE(absl::IsNotFound(other.Load()));
  EXPECT_TRUE(other.entries().empty());
  for (const char* text : {"{", "{\"version\": 2, \"boot\": \"boot\", \"drains\": []}",
                           "{\"version\": 1, \"boot\": \"boot\", \"drains\": [{\"kind\": \"rack\"}]}"}) {
    std::ofstream(file_) << text;
    Drains broken(file_, "boot");
    EXPECT_TRUE(absl::IsInvalidArgument(broken.Load())) << text;
    EXPECT_TRUE(broken.entries().empty());
  }
}

TEST(DrainEntry, CountsTheBytesOfTheLastSecondAndTheSilence) {
  DrainEntry entry = {.since_ns = 1'000'000'000};
  EXPECT_DOUBLE_EQ(entry.QuietS(3'000'000'000), 2);
  entry.Sent(3'000'000'000, 100);
  entry.Sent(3'500'000'000, 50);
  EXPECT_EQ(entry.BytesLastSecond(3'600'000'000), 150u);
  EXPECT_EQ(entry.BytesLastSecond(4'200'000'000), 50u);
  entry.told_safe = true;
  entry.Sent(5'000'000'000, 0);
  EXPECT_TRUE(entry.told_safe);
  EXPECT_EQ(entry.BytesLastSecond(5'000'000'000), 0u);
  EXPECT_DOUBLE_EQ(entry.QuietS(13'500'000'000), 10);
  entry.Sent(14'000'000'000, 1);
  EXPECT_FALSE(entry.told_safe);
  EXPECT_DOUBLE_EQ(entry.QuietS(14'000'000'000), 0);
}

TEST(DrainEntry, IsNotSilentWhileAQueuePairIsOnItWhosePacketsAreNotSeen) {
  DrainEntry entry = {.since_ns = 1'000'000'000};
  entry.told_safe = true;
  entry.SentUnseen(9'000'000'000);
  entry.Sent(10'000'000'000, 0);
  EXPECT_FALSE(entry.told_safe);
  EXPECT_DOUBLE_EQ(entry.QuietS(10'000'000'000), 1);
  EXPECT_EQ(entry.BytesLastSecond(9'000'000'000), 0u) << "how much it sends is not known";
  entry.crossing[3] = 0b10;
  EXPECT_EQ(entry.CrossingOf(3), 0b10);
  EXPECT_EQ(entry.CrossingOf(4), 0);
  EXPECT_EQ(entry.UnknownOf(3), 0);
}

}  // namespace
}  // namespace cw::agent
