// SPDX-License-Identifier: Apache-2.0
// Whether the agent is gone or only starved: a process of its own, which the test kills.
#include "userspace/dataplane/presence.h"

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "maps/names.h"
#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

class PresenceTest : public Egress {
 protected:
  // Packets are under way on slot 1 that nobody answers, and nobody probes.
  void SetUp() override {
    ASSERT_EQ(bpf_obj_pin(rig_.presence_fd(), pin_.c_str()), 0) << strerror(errno) << "; is bpffs mounted?";
    Place(1);
    rig_.ctl().blind_jiffies = 50;
    rig_.ctl().stuck_jiffies = 5000;
    rig_.pair(5).round_jiffies = JiffiesNow(rig_) - 1000;
    Send(1);
  }
  void TearDown() override {
    if (agent_ > 0) Kill();
    unlink(pin_.c_str());
  }

  void StartAgent() {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    agent_ = fork();
    if (agent_ == 0) {
      const auto presence = dataplane::Presence::Enter(pin_);
      const char say = presence.ok() ? 'y' : 'n';
      (void)!write(ready[1], &say, 1);
      for (;;) pause();
    }
    char said = 0;
    ASSERT_EQ(read(ready[0], &said, 1), 1);
    close(ready[0]);
    close(ready[1]);
    ASSERT_EQ(said, 'y');
  }
  void Kill() {
    kill(agent_, SIGKILL);
    waitpid(agent_, nullptr, 0);
    agent_ = 0;
  }
  // One more packet, long after the last answer; whether it left the path.
  bool Leaves() {
    Edit([&](cw_tx_flow& f) {
      f.acked_psn = 1;
      f.acked_valid = 1;
      f.heard_jiffies = static_cast<uint16_t>(JiffiesNow(rig_) - 300);
      f.doubt_jiffies = static_cast<uint16_t>(JiffiesNow(rig_) - 50);
      f.moved_jiffies = JiffiesNow(rig_) - 2000;
      f.nak_jiffies = static_cast<uint16_t>(JiffiesNow(rig_) - 1000);
    });
    return Send(next_++) != 50001;
  }

  const std::string pin_ = absl::StrCat(CW_BPFFS "/cw_presence_test_", getpid());
  pid_t agent_ = 0;
  uint32_t next_ = 2;
};

TEST_F(PresenceTest, WhileTheAgentIsThereNoFlowLeavesUnanswered) {
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  EXPECT_FALSE(Leaves());
  EXPECT_EQ(rig_.ctl().alone, 0u);
  Kill();
  EXPECT_TRUE(Leaves());
  EXPECT_EQ(rig_.ctl().alone, 1u);
}

TEST_F(PresenceTest, AnAgentThatFollowsIsThereToo) {
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  const pid_t first = agent_;
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  const pid_t second = agent_;
  agent_ = first;
  Kill();
  agent_ = second;
  EXPECT_FALSE(Leaves());
}

// Until when, the one that stopped has left in the pair's record.
TEST_F(PresenceTest, WhileASuccessorIsAwaitedNoFlowLeavesUnanswered) {
  rig_.pair(5).round_jiffies = JiffiesNow(rig_) + 1000;
  EXPECT_FALSE(Leaves());
  rig_.pair(5).round_jiffies = JiffiesNow(rig_) - 1000;
  EXPECT_TRUE(Leaves());
}

TEST_F(PresenceTest, OneThatIsStuckForLongIsAsGoodAsGone) {
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  rig_.pair(5).round_jiffies = JiffiesNow(rig_) - 6000;
  EXPECT_TRUE(Leaves());
}

TEST_F(PresenceTest, WithoutAnyoneWhoAsksNothingChanges) {
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  rig_.ctl().stuck_jiffies = 0;
  EXPECT_TRUE(Leaves());
}

// Who looks into the map, and goes, takes nobody with him.
TEST_F(PresenceTest, AnyoneMayLook) {
  ASSERT_NO_FATAL_FAILURE(StartAgent());
  const int fd = bpf_obj_get(pin_.c_str());
  ASSERT_GE(fd, 0);
  close(fd);
  EXPECT_FALSE(Leaves());
}

}  // namespace
}  // namespace cw::test
