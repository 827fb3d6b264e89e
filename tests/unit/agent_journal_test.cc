// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::agent {
namespace {

class JournalPart : public ::testing::Test {
 protected:
  std::vector<telemetry::Event> written_;
  Journal journal_{[this](const telemetry::Event& event) { written_.push_back(event); }};
};

TEST_F(JournalPart, KeepsAndWritesWithTimeAndNumber) {
  journal_.Log({.type = "agent", .text = "one"});
  journal_.Log({.type = "agent", .text = "two"});
  ASSERT_EQ(written_.size(), 2u);
  EXPECT_EQ(written_[0].seq + 1, written_[1].seq);
  EXPECT_GT(written_[0].time_unix_ns, 0);
  EXPECT_EQ(journal_.log().newest(), written_[1].seq);
}

TEST_F(JournalPart, AnActSaysWhoAskedForIt) {
  journal_.LogAct({.name = "ann", .role = api::Role::kAdmin, .via = "uid 7"}, {.type = "mode", .text = "mode is off"});
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].text, "ann: mode is off");
  EXPECT_EQ(written_[0].severity, telemetry::Severity::kNotice);
  EXPECT_THAT(written_[0].evidence, testing::Contains(std::pair<std::string, std::string>("by", "ann")));
  EXPECT_THAT(written_[0].evidence, testing::Contains(std::pair<std::string, std::string>("via", "uid 7")));
}

TEST_F(JournalPart, TheAgentsOwnDoingStandsByItself) {
  journal_.LogAct({}, {.type = "mode", .text = "the mode ended"});
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].text, "the mode ended");
  EXPECT_TRUE(written_[0].evidence.empty());
}

}  // namespace
}  // namespace cw::agent
