// SPDX-License-Identifier: Apache-2.0
//
// What ends by itself, over restarts of the agent that keeps it.
#include "userspace/agent/deadlines.h"
#include "userspace/model/boot_id.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace cw::agent {
namespace {

FlowKey Flow(uint32_t qpn) { return {.src = Addr::FromV4(0x0a00000a), .dst = Addr::FromV4(0x0a00010a), .dqpn = qpn}; }

class DeadlinesTest : public ::testing::Test {
 protected:
  DeadlinesTest() {
    char name[] = "/tmp/cw-deadlines-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/deadlines.json";
  }
  ~DeadlinesTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

  std::string folder_, file_;
};

TEST_F(DeadlinesTest, TheFirstPlaceIsKeptOverARestart) {
  Deadlines first(file_, "boot");
  first.RememberPlace(Flow(1), {.slot = 2, .port = 49154});
  first.RememberPlace(Flow(1), {.slot = 0, .port = 49152});  // set again by hand: not where it is to go back to
  first.RememberPlace(Flow(2), {.slot = 1, .port = 0});
  first.ForgetPlacesUnless([](const FlowKey& flow) { return flow == Flow(1); });
  ASSERT_TRUE(first.Save().ok());
  Deadlines second(file_, "boot");
  ASSERT_TRUE(second.Load().ok());
  EXPECT_EQ(second.TakePlace(Flow(1)), (Deadlines::Place{.slot = 2, .port = 49154}));
  EXPECT_EQ(second.TakePlace(Flow(1)), std::nullopt);
  EXPECT_EQ(second.TakePlace(Flow(2)), std::nullopt);
  ASSERT_TRUE(second.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(file_)) << "nothing is left to end";
}

TEST_F(DeadlinesTest, AnotherAgentTakesOverWhatWasSaved) {
  Deadlines first(file_, "boot");
  EXPECT_TRUE(absl::IsNotFound(first.Load()));
  first.SetPlacement(Flow(1), 100);
  first.SetPlacement(Flow(2), 300);
  first.SetLock(Flow(1), 200);
  first.SetMode(Deadlines::ModeEnd{.set = Mode::kOptimize, .after = Mode::kObserve, .at_ns = 150});
  ASSERT_TRUE(first.Save().ok());

  Deadlines second(file_, "boot");
  ASSERT_TRUE(second.Load().ok());
  EXPECT_EQ(second.size(), 4u);
  EXPECT_EQ(second.mode(), first.mode());
  EXPECT_DOUBLE_EQ(second.FlowSecondsLeft(Flow(2), 0), 0.001) << "never 0 while it is to end";
  Deadlines::Due due = second.TakeDue(150);
  EXPECT_EQ(due.placements, std::vector<FlowKey>{Flow(1)});
  EXPECT_TRUE(due.locks.empty());
  ASSERT_TRUE(due.mode.has_value());
  EXPECT_EQ(due.mode->after, Mode::kObserve);
  ASSERT_TRUE(second.Save().ok());

  Deadlines third(file_, "boot");
  ASSERT_TRUE(third.Load().ok());
  due = third.TakeDue(1000);
  EXPECT_EQ(due.placements, std::vector<FlowKey>{Flow(2)});
  EXPECT_EQ(due.locks, std::vector<FlowKey>{Flow(1)});
  EXPECT_FALSE(due.mode.has_value());
  ASSERT_TRUE(third.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(file_)) << "nothing is left to keep";
}

TEST_F(DeadlinesTest, SingleCapabilitiesAreKeptWithTheMode) {
  const Allowed set = Allowed(Mode::kProtect).With(Capability::kBalance, Allow::kAct);
  Deadlines first(file_, "boot");
  first.SetMode(Deadlines::ModeEnd{.set = set, .after = Mode::kObserve, .at_ns = 150});
  ASSERT_TRUE(first.Save().ok());
  Deadlines second(file_, "boot");
  ASSERT_TRUE(second.Load().ok());
  EXPECT_EQ(second.mode()->set, set);
}

TEST_F(DeadlinesTest, WhatIsTakenBackDoesNotEnd) {
  Deadlines deadlines(file_, "boot");
  deadlines.SetPlacement(Flow(1), 100);
  deadlines.SetLock(Flow(1), 100);
  deadlines.SetMode(Deadlines::ModeEnd{.set = Mode::kOff, .after = Mode::kProtect, .at_ns = 100});
  deadlines.SetPlacement(Flow(1), 0);
  deadlines.SetLock(Flow(1), 0);
  deadlines.SetMode(std::nullopt);
  EXPECT_EQ(deadlines.FlowSecondsLeft(Flow(1), 0), 0);
  const Deadlines::Due due = deadlines.TakeDue(1000);
  EXPECT_TRUE(due.placements.empty() && due.locks.empty() && !due.mode);
}

TEST_F(DeadlinesTest, TheTimesOfAnotherBootAreNotRead) {
  Deadlines before(file_, "boot 1");
  before.SetPlacement(Flow(1), 100);
  ASSERT_TRUE(before.Save().ok());
  Deadlines after(file_, "boot 2");
  EXPECT_TRUE(absl::IsNotFound(after.Load()));
  EXPECT_EQ(after.size(), 0u);
  ASSERT_TRUE(after.Save().ok());
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(DeadlinesTest, EveryTruncationIsAnErrorAndLeavesNothingHalf) {
  Deadlines before(file_, "boot");
  before.SetPlacement(Flow(1), 100);
  before.SetMode(Deadlines::ModeEnd{.set = Mode::kOff, .after = Mode::kProtect, .at_ns = 100});
  ASSERT_TRUE(before.Save().ok());
  const std::string whole = Text();
  for (size_t length = 0; length + 2 < whole.size(); ++length) {
    std::ofstream(file_) << whole.substr(0, length);
    Deadlines after(file_, "boot");
    EXPECT_TRUE(absl::IsInvalidArgument(after.Load())) << length;
    EXPECT_EQ(after.size(), 0u) << length;
  }
  for (const char* strange :
       {"[]", "7", "{\"boot\":\"boot\",\"version\":2}", "{\"boot\":7}",
        "{\"boot\":\"boot\",\"version\":1,\"placements\":[{}],\"locks\":[]}",
        "{\"boot\":\"boot\",\"version\":1,\"placements\":[],\"locks\":[],\"mode\":{\"set\":\"x\"}}"}) {
    std::ofstream(file_) << strange;
    Deadlines after(file_, "boot");
    EXPECT_TRUE(absl::IsInvalidArgument(after.Load())) << strange;
    EXPECT_EQ(after.size(), 0u) << strange;
  }
}

TEST_F(DeadlinesTest, AFolderThatIsGoneIsAnError) {
  Deadlines deadlines(folder_ + "/none/deadlines.json", "boot");
  deadlines.SetPlacement(Flow(1), 100);
  EXPECT_FALSE(deadlines.Save().ok());
}

TEST(BootId, IsThisBoots) {
  EXPECT_EQ(BootId().size(), 36u);
  EXPECT_EQ(BootId(), BootId());
}

}  // namespace
}  // namespace cw::agent
