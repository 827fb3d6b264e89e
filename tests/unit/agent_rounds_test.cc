// SPDX-License-Identifier: Apache-2.0
//
// The order in which the parts of the agent do their work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;

TEST(Rounds, WhatWasMeasuredIsReadBeforeItIsJudged) {
  EXPECT_THAT(Agent::OrderOf(Agent::Round::kRings), ElementsAre("probes", "lossy paths", "clocks"));
  EXPECT_THAT(Agent::OrderOf(Agent::Round::kMail), ElementsAre("messages", "greeting", "sizes", "samples"));
}

TEST(Rounds, AWindowReadsThenRecoversThenBalances) {
  EXPECT_THAT(Agent::OrderOf(Agent::Round::kWindow),
              ElementsAre("last looks", "flows", "scopes", "stalls", "silence", "silent peers", "unwatched ports",
                          "mute ports", "pace", "drains", "returns", "breaker", "observe", "causes", "balance"));
}

TEST(Rounds, ASecondKeepsTheProgramsTrustedFirst) {
  EXPECT_THAT(Agent::OrderOf(Agent::Round::kSecond),
              ElementsAre("watchdog", "lease", "mode", "session", "pairs", "met wishes", "link flaps", "carriers",
                          "addresses", "hooks", "blind NICs", "MTUs", "deadlines", "scopes", "dry run", "causes",
                          "gaps", "due drains", "owners' moves", "owners' drains", "others' traffic", "owners' returns",
                          "received flows", "unseen queue pairs", "labels", "clock's pairs", "idle flows", "flow table",
                          "events file", "meters"));
}

}  // namespace
}  // namespace cw::agent
