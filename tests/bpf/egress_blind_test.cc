// SPDX-License-Identifier: Apache-2.0
// Flows that look after themselves while nobody probes (bpf/blind.h).
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <set>

#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

// Nobody probes any more: the pair is blind, and its flows look after themselves.
class BlindEgress : public Egress {
 protected:
  // A running flow on slot 1, with packets under way that are `quiet` jiffies old.
  void SetUp() override {
    Place(1);
    rig_.ctl().blind_jiffies = 50;
    rig_.pair(5).round_jiffies = Now() - 1000;
    Send(1);
    Wait(0, 0);
  }
  uint64_t Now() { return JiffiesNow(rig_); }
  void Wait(int quiet, int doubted) {
    Edit([&](cw_tx_flow& f) {
      f.acked_psn = 1;
      f.acked_valid = 1;
      f.heard_jiffies = static_cast<uint16_t>(Now() - static_cast<uint64_t>(quiet));
      f.doubt_jiffies = static_cast<uint16_t>(Now() - static_cast<uint64_t>(doubted));
      f.moved_jiffies = Now() - 2000;
      f.nak_jiffies = static_cast<uint16_t>(Now() - 1000);
    });
  }
};

TEST_F(BlindEgress, AFlowThatIsNotAnsweredGoesElsewhere) {
  EXPECT_EQ(Send(2), 50001);
  Wait(30, 5);
  const uint16_t port = Send(3);
  EXPECT_NE(port, 50001);
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=1");
  EXPECT_EQ(Sent().reason, CW_MOVE_BLIND);
  EXPECT_EQ(Sent().blind_moves, 1);
  EXPECT_EQ(rig_.pair(5).shunned & 0xffff, 2u);
  EXPECT_EQ(As<cw_ev_move>(rig_.Events().back()).reason, CW_MOVE_BLIND);
  EXPECT_EQ(Send(4), port) << "the new path has its time";
}

TEST_F(BlindEgress, ItTriesTheOthersAndThenStays) {
  std::set<uint16_t> ports{50001};
  for (uint32_t i = 0; i < 3; ++i) {
    Wait(1000, 5);
    EXPECT_TRUE(ports.insert(Send(2 + i)).second) << i;
  }
  EXPECT_EQ(ports.size(), 4u);
  const uint16_t last = Sent().port;
  for (uint32_t i = 0; i < 3; ++i) {
    Wait(1000, 5);
    EXPECT_EQ(Send(5 + i), last) << "no path is to blame";
  }
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=3");
  // 40 times the 50 jiffies that make a pair blind later.
  rig_.pair(5).shunned = static_cast<uint32_t>(((Now() - 2200) >> 6) & 0xffff) << 16 | 0xf;
  Wait(1000, 5);
  EXPECT_NE(Send(8), last);
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=1");
}

TEST_F(BlindEgress, ASlotThatOnlyWatchesAPortIsNoWayOut) {
  rig_.pair(5).assign_mask = 0x7;
  std::set<uint16_t> ports{50001};
  for (uint32_t i = 0; i < 2; ++i) {
    Wait(1000, 5);
    EXPECT_TRUE(ports.insert(Send(2 + i)).second) << i;
  }
  EXPECT_FALSE(ports.contains(50003));
  const uint16_t last = Sent().port;
  Wait(1000, 5);
  EXPECT_EQ(Send(4), last) << "no path is to blame";
  rig_.pair(5).assign_mask = 0;  // but where there is nothing else
  Wait(1000, 5);
  EXPECT_EQ(Send(5), 50003);
}

TEST_F(BlindEgress, WhoeverMustNotOrNeedNotStays) {
  Wait(30, 500);  // the sender stood still itself: it has not run for any time since
  EXPECT_EQ(Send(2), 50001);
  Wait(30, 5);
  Edit([](cw_tx_flow& f) { f.flags = CW_STEER_HARD_LOCKED; });
  EXPECT_EQ(Send(3), 50001);
  Edit([](cw_tx_flow& f) {
    f.flags = 0;
    f.acked_valid = 0;  // never answered at all: nothing is known
  });
  EXPECT_EQ(Send(4), 50001);
  Wait(15, 5);
  Edit([](cw_tx_flow& f) { f.heard_gap = 64 * 14; });  // it often waits for so long
  EXPECT_EQ(Send(5), 50001);
  Edit([](cw_tx_flow& f) { f.heard_gap = 0; });
  rig_.pair(5).round_jiffies = Now();  // somebody probes
  EXPECT_EQ(Send(6), 50001);
  rig_.pair(5).round_jiffies = Now() - 1000;
  EXPECT_EQ(rig_.CounterChanges(), "");
  rig_.ctl().mode = CW_MODE_OBSERVE;
  EXPECT_EQ(Send(7), 49999);
  EXPECT_EQ(Sent().port, 50001);
  EXPECT_EQ(Sent().moves, 0u);
}

TEST_F(BlindEgress, WhatIsSentAgainInVainIsEnough) {
  const auto often_waits = [](int jiffies) {
    return [jiffies](cw_tx_flow& f) { f.heard_gap = static_cast<uint16_t>(64 * jiffies); };
  };
  Edit(often_waits(12));
  Wait(20, 500);
  EXPECT_EQ(Send(1), 50001) << "for the first time: the stack may have stood still";
  Wait(12, 8);
  EXPECT_EQ(Send(1), 50001) << "as it often does";
  Wait(20, 10);
  EXPECT_NE(Send(1), 50001);
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=1");
}

TEST_F(BlindEgress, ALongTimerIsNotWaitedForTwice) {
  Wait(60, 500);
  EXPECT_NE(Send(1), 50001);
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=1");
}

TEST_F(BlindEgress, WhatANakAskedForIsNoSign) {
  Wait(20, 10);
  Edit([this](cw_tx_flow& f) {
    f.heard_gap = 64 * 10;
    f.nak_jiffies = static_cast<uint16_t>(Now());
  });
  EXPECT_EQ(Send(1), 50001);
  Wait(20, 10);  // nor is it for ever
  EXPECT_NE(Send(1), 50001);
}

TEST_F(BlindEgress, ANakThatIsSentIsRemembered) {
  Frame nak = Data(1);
  nak.opcode = 0x11;
  nak.payload.clear();
  nak.ext = Aeth(0x60);
  Edit([](cw_tx_flow& f) {
    f.unanswered = 1;
    f.moved_jiffies = 1;
  });
  EXPECT_EQ(Send(nak), 50001);
  EXPECT_LE(static_cast<uint16_t>(Now() - Sent().nak_jiffies), 100);
  EXPECT_EQ(Sent().unanswered, 0) << "the packet that it is about looked as if it were sent again";
}

TEST_F(BlindEgress, ThatIsAllThereIsWhereAnswersAreNobodys) {
  Edit([](cw_tx_flow& f) { f.acked_valid = 0; });
  EXPECT_EQ(Send(2), 50001);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Send(1), 50001) << "sent again once";
  Edit([this](cw_tx_flow& f) { f.doubt_jiffies = static_cast<uint16_t>(Now() - 20); });
  const uint16_t port = Send(1);
  EXPECT_NE(port, 50001);
  EXPECT_EQ(Send(2), port) << "sent again with it";
}

TEST_F(BlindEgress, ItStaysThereThoughTheLeaseIsOver) {
  Wait(30, 5);
  const uint16_t port = Send(3);
  rig_.ctl().lease_jiffies = 1;
  Edit([](cw_tx_flow& f) { f.acked_psn = 4; });
  EXPECT_EQ(Send(4), port) << "its home is what died, perhaps";
}

TEST_F(BlindEgress, AnswersThatDieGoElsewhereToo) {
  const auto sent_again = [](uint8_t times) {
    return [times](cw_tx_flow& f) {
      f.unanswered = times;
      f.moved_jiffies = 1;
    };
  };
  Frame ack = Data(1);
  ack.opcode = 0x11;
  ack.payload.clear();
  Edit(sent_again(1));
  EXPECT_EQ(Send(ack), 50001);
  Edit(sent_again(2));
  EXPECT_NE(Send(ack), 50001);
  EXPECT_EQ(Sent().unanswered, 0);
  EXPECT_EQ(rig_.CounterChanges(), "moves_blind=1");
}

}  // namespace
}  // namespace cw::test
