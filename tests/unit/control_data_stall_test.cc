// SPDX-License-Identifier: Apache-2.0
// Paths on which data dies while probes pass, told from the flows' acknowledgements.
#include "tests/unit/time_units.h"
#include "userspace/control/data_stall.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace cw::control {
namespace {

// Flows that send 20 packets a window (of 20 ms if nothing else is said), and have at most `most` under way.
class Flows {
 public:
  // lone_quiet_ns: see DataStallRules; most tests have one flow on a path and are about something else.
  explicit Flows(std::vector<uint8_t> slots, uint32_t most = 100, int64_t lone_quiet_ns = 0)
      : most_(most), stall_({.lone_quiet_ns = lone_quiet_ns}) {
    for (uint8_t slot : slots) {
      flows_.push_back({.key = {Addr::FromV4(1), Addr::FromV4(2), static_cast<uint32_t>(flows_.size() + 16)},
                        .slot = slot,
                        .next = 0xfffff0,  // PSNs wrap
                        .acked = 0xfffff0,
                        .known = true});
    }
  }
  DataFlow& operator[](size_t i) { return flows_[i]; }

  // dead(slot, now): data on the slot is lost. Returns the verdicts of all windows.
  std::vector<DataStall::Verdict> Run(int windows, const std::function<bool(uint8_t)>& dead) {
    std::vector<DataStall::Verdict> all;
    for (int w = 0; w < windows; ++w) {
      now_ns_ += window_ns_;
      for (DataFlow& flow : flows_) {
        if (stopped_) break;
        const uint32_t under_way = (flow.next - flow.acked) & 0xffffff;
        flow.next = (flow.next + std::min<uint32_t>(20, most_ - std::min(most_, under_way))) & 0xffffff;
        const auto i = static_cast<size_t>(&flow - flows_.data());
        if (dead(flow.slot) || (flow.process != 0 && flow.process == killed_) || i == lost_) {
          flow.resent += i != mute_;
          continue;
        }
        flow.acked = (flow.next - (i == whole_ ? 0 : 5)) & 0xffffff;
        ++flow.answers;
      }
      const auto verdicts = stall_.Step(now_ns_, flows_, alive_);
      all.insert(all.end(), verdicts.begin(), verdicts.end());
    }
    return all;
  }
  uint16_t KeptFree() const { return stall_.KeptFree(now_ns_); }
  void LookEvery(int64_t ns) { window_ns_ = ns; }
  void Stop() { stopped_ = true; }
  void Kill(uint32_t process) { killed_ = process; }  // the peer of this one
  void Lose(size_t flow) { lost_ = flow; }            // nothing of it arrives
  void Mute(size_t flow) { mute_ = flow; }            // it sends nothing again
  void AnswerAll(size_t flow) { whole_ = flow; }      // it has nothing under way when it is looked at
  void Alive(uint16_t slots) { alive_ = slots; }
  void Pass(int64_t ns) { now_ns_ += ns; }

 private:
  uint32_t most_;
  bool stopped_ = false;
  uint32_t killed_ = 0;
  size_t lost_ = SIZE_MAX, mute_ = SIZE_MAX, whole_ = SIZE_MAX;
  uint16_t alive_ = 0xf;
  int64_t now_ns_ = 1'000 * kMs, window_ns_ = 20 * kMs;
  std::vector<DataFlow> flows_;
  DataStall stall_;
};

bool Nothing(uint8_t) { return false; }

TEST(DataStall, APathWhoseFlowsStandStillAloneIsLeftAndTriedAgainLater) {
  Flows flows({0, 0, 1, 2});
  EXPECT_TRUE(flows.Run(20, Nothing).empty());
  const auto verdicts = flows.Run(20, [](uint8_t slot) { return slot == 0; });
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].slot, 0);
  EXPECT_EQ(verdicts[0].flows, 2);
  EXPECT_EQ(verdicts[0].witnesses, 2);
  EXPECT_GE(verdicts[0].quiet_ns, 60 * kMs);
  EXPECT_LE(verdicts[0].quiet_ns, 180 * kMs);
  EXPECT_EQ(flows.KeptFree(), 1);
  flows.Pass(verdicts[0].away_ns);
  EXPECT_EQ(flows.KeptFree(), 0);
}

TEST(DataStall, AFlowThatIsAloneOnItsPathIsWaitedForLonger) {
  Flows flows({0, 1, 2, 3}, 100, DataStallRules().lone_quiet_ns);
  flows.Run(20, Nothing);
  EXPECT_TRUE(flows.Run(90, [](uint8_t slot) { return slot == 0; }).empty()) << "1.8 s: its stack, perhaps";
  const auto verdicts = flows.Run(20, [](uint8_t slot) { return slot == 0; });
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].flows, 1);
  EXPECT_GE(verdicts[0].quiet_ns, 2000 * kMs);
}

// As long as a host stands still nobody looks, and its stack stands still with it.
TEST(DataStall, TimeInWhichNobodyLookedIsNoSilence) {
  Flows flows({0, 1, 2, 3}, 100, DataStallRules().lone_quiet_ns);
  const auto dead = [](uint8_t slot) { return slot == 0; };
  flows.Run(20, Nothing);
  EXPECT_TRUE(flows.Run(5, dead).empty());
  flows.Pass(40'000 * kMs);
  EXPECT_TRUE(flows.Run(90, dead).empty()) << "1.8 s since then";
  EXPECT_EQ(flows.Run(20, dead).size(), 1u);
}

// Two that wait for their timers since they moved, and one that goes on: a stack that hardly works.
TEST(DataStall, WhereFlowsWaitForSecondsByThemselvesOneAloneIsWaitedForLongerStill) {
  Flows flows({0, 1, 2, 3}, 100, DataStallRules().lone_quiet_ns);
  const auto dead = [](uint8_t slot) { return slot == 0; };
  flows.Run(20, Nothing);
  EXPECT_TRUE(flows.Run(45, dead).empty()) << "900 ms, and it goes on";
  flows.Run(5, Nothing);
  EXPECT_TRUE(flows.Run(150, dead).empty()) << "3 s: not six times as long, though that is being forgotten";
  EXPECT_EQ(flows.Run(100, dead).size(), 1u);
}

// Soft-RoCE of 6.1 forgets a queue pair now and then, whatever its path.
TEST(DataStall, AFlowThatIsAloneAndSendsNothingAgainIsNoPathsFault) {
  Flows flows({0, 1, 2, 3}, 100, DataStallRules().lone_quiet_ns);
  flows.Run(20, Nothing);
  flows.Mute(0);
  EXPECT_TRUE(flows.Run(200, [](uint8_t slot) { return slot == 0; }).empty());
  flows.Mute(SIZE_MAX);
  EXPECT_EQ(flows.Run(5, [](uint8_t slot) { return slot == 0; }).size(), 1u) << "it tries again, in vain";
}

TEST(DataStall, AFlowThatIsAloneIsNoPathsFaultWhereMostOthersWaitToo) {
  Flows flows({0, 1, 2, 3});
  flows.Run(20, Nothing);
  flows[1].slot = 2;
  flows[2].slot = 1;
  EXPECT_TRUE(flows.Run(50, [](uint8_t slot) { return slot != 3; }).empty());
}

TEST(DataStall, ASecondTimeItIsLeftForLonger) {
  Flows flows({0, 1});
  flows.Run(5, Nothing);
  const auto first = flows.Run(20, [](uint8_t slot) { return slot == 0; });
  ASSERT_EQ(first.size(), 1u);
  flows.Pass(first[0].away_ns);
  flows.Run(5, Nothing);
  const auto second = flows.Run(20, [](uint8_t slot) { return slot == 0; });
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].away_ns, 2 * first[0].away_ns);
}

// Soft-RoCE's timers, and processors that are short, stall flows for a tenth of a second by themselves.
TEST(DataStall, SilencesThatEndByThemselvesTeachPatience) {
  const auto dead = [](uint8_t slot) { return slot == 0; };
  Flows flows({0, 1, 2, 3});
  flows.Run(20, Nothing);
  for (const int windows : {2, 7, 20, 45}) {  // 60, 160, 420 and 920 ms from answer to answer
    EXPECT_TRUE(flows.Run(windows, dead).empty()) << windows;
    EXPECT_TRUE(flows.Run(1, Nothing).empty()) << windows;
  }
  const auto late = flows.Run(250, dead);
  ASSERT_EQ(late.size(), 1u) << "patience has an end";
  EXPECT_GE(late[0].quiet_ns, 3000 * kMs) << "six times the longest, as it is alone; that is being forgotten";
  EXPECT_LE(late[0].quiet_ns, 4500 * kMs);
  flows.Pass(late[0].away_ns);
  flows.Run(3000, Nothing);  // a minute
  const auto soon = flows.Run(50, dead);
  ASSERT_EQ(soon.size(), 1u) << "what is long ago is forgotten";
  EXPECT_LE(soon[0].quiet_ns, 180 * kMs);
}

// A host whose processors are short looks ten times more seldom, and its stack stalls for longer than it looks.
TEST(DataStall, WhereItIsLookedAtSeldomPatienceIsLearntAllTheSame) {
  const auto dead = [](uint8_t slot) { return slot == 0; };
  Flows flows({0, 0, 1, 2});
  flows.LookEvery(100 * kMs);
  flows.Run(5, Nothing);
  EXPECT_TRUE(flows.Run(2, dead).empty()) << "two looks";
  flows.Run(1, Nothing);
  EXPECT_TRUE(flows.Run(5, dead).empty()) << "less than twice the last one";
  flows.Run(1, Nothing);
  const auto verdicts = flows.Run(25, dead);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].flows, 2);
  EXPECT_GE(verdicts[0].quiet_ns, 1500 * kMs);
}

TEST(DataStall, OneLateLookIsNoPeriod) {
  const auto dead = [](uint8_t slot) { return slot == 0; };
  Flows flows({0, 0, 1, 2});
  flows.Run(20, Nothing);
  flows.Pass(500 * kMs);
  flows.Run(2, Nothing);
  const auto verdicts = flows.Run(10, dead);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_LE(verdicts[0].quiet_ns, 180 * kMs);
}

TEST(DataStall, TheFirstOfSeldomLooksIsNoVerdict) {
  Flows flows({0, 0, 1, 2});
  flows.LookEvery(10 * kMs);
  EXPECT_TRUE(flows.Run(40, Nothing).empty());
  const auto dead = [](uint8_t slot) { return slot == 0; };
  flows.LookEvery(100 * kMs);
  EXPECT_TRUE(flows.Run(1, dead).empty()) << "quiet for longer than 60 ms, but seen so only once";
  EXPECT_EQ(flows.Run(5, dead).size(), 1u);
}

TEST(DataStall, AReceiverThatStandsStillIsNoPath) {
  Flows flows({0, 1, 2, 3});
  flows.Run(5, Nothing);
  EXPECT_TRUE(flows.Run(100, [](uint8_t) { return true; }).empty());
  Flows alone({0, 0});  // nobody goes on elsewhere
  alone.Run(5, Nothing);
  EXPECT_TRUE(alone.Run(100, [](uint8_t slot) { return slot == 0; }).empty());
}

// After an outage of the peer each flow waits for its own timer.
TEST(DataStall, FlowsThatGoOnLaterThanOthersAfterAnOutageAreNoPath) {
  Flows flows({0, 0, 1, 2}, 30);
  flows.Run(5, Nothing);
  EXPECT_TRUE(flows.Run(50, [](uint8_t) { return true; }).empty());
  EXPECT_TRUE(flows.Run(50, [](uint8_t slot) { return slot == 0; }).empty()) << "their timer is of a second";
  EXPECT_TRUE(flows.Run(5, Nothing).empty());
  EXPECT_EQ(flows.Run(20, [](uint8_t slot) { return slot == 0; }).size(), 1u) << "they went on, so they count again";
}

// Nobody moved them off (mode observe), and the path is back before their timers are over.
TEST(DataStall, FlowsOfAPathThatDiedAndCameBackBlameItForNothing) {
  Flows flows({0, 0, 1, 2}, 30);
  const auto dead = [](uint8_t slot) { return slot == 0; };
  flows.Run(5, Nothing);
  flows.Alive(0xe);
  EXPECT_TRUE(flows.Run(50, dead).empty());
  flows.Alive(0xf);
  EXPECT_TRUE(flows.Run(50, dead).empty()) << "their timer is of a second";
  EXPECT_TRUE(flows.Run(5, Nothing).empty());
  EXPECT_EQ(flows.Run(20, dead).size(), 1u) << "they went on, so they count again";
}

TEST(DataStall, WhatAFlowLostBeforeItMovedIsNoFaultOfTheNextPath) {
  Flows flows({0, 1, 2}, /*most=*/40);
  EXPECT_TRUE(flows.Run(20, Nothing).empty());
  // Its last packets die with path 0, it is moved, and waits for its timer on path 3, which is whole.
  EXPECT_TRUE(flows.Run(2, [](uint8_t slot) { return slot == 0; }).empty());
  flows[0].slot = 3;
  EXPECT_TRUE(flows.Run(50, [](uint8_t slot) { return slot == 3; }).empty());
  EXPECT_TRUE(flows.Run(5, Nothing).empty());
  EXPECT_EQ(flows.Run(20, [](uint8_t slot) { return slot == 3; }).size(), 1u) << "it has gone on there";
}

TEST(DataStall, AnAnswerOfBeforeTheMoveSaysNothingOfTheNextPath) {
  Flows flows({0, 1, 2}, /*most=*/40);
  EXPECT_TRUE(flows.Run(20, Nothing).empty());
  EXPECT_TRUE(flows.Run(1, [](uint8_t slot) { return slot == 0; }).empty());
  // Seen in the same window: the last answer by path 0, and that the flow is on path 3.
  flows[0].slot = 3;
  ++flows[0].answers;
  EXPECT_TRUE(flows.Run(50, [](uint8_t slot) { return slot == 3; }).empty());
}

TEST(DataStall, AFlowThatGoesOnClearsItsPath) {
  Flows flows({0, 0, 1});
  flows.Run(5, Nothing);
  for (int w = 0; w < 50; ++w) {
    flows[0].answers += 1;  // it goes on, though the other flow of the path does not
    EXPECT_TRUE(flows.Run(1, [](uint8_t slot) { return slot == 0; }).empty());
  }
}

TEST(DataStall, NaksAreAnswersAndUnknownPsnsSayNothing) {
  Flows naked({0, 1});
  naked.Run(5, Nothing);
  for (int w = 0; w < 50; ++w) {
    ++naked[0].answers;
    EXPECT_TRUE(naked.Run(1, [](uint8_t slot) { return slot == 0; }).empty());
  }
  Flows unknown({0, 1});
  unknown[0].known = false;
  unknown.Run(5, Nothing);
  EXPECT_TRUE(unknown.Run(50, [](uint8_t slot) { return slot == 0; }).empty());
}

TEST(DataStall, ALongMessageIsNoStandstill) {
  Flows flows({0, 1}, 100'000);  // it sends on, and is acknowledged every 60 windows
  for (int round = 0; round < 5; ++round) {
    flows[0].acked = flows[0].next;
    ++flows[0].answers;
    const auto verdicts = flows.Run(60, [](uint8_t slot) { return slot == 0; });
    if (round > 0) {  // the first is not known to be long
      EXPECT_TRUE(verdicts.empty()) << round;
    }
    flows.Pass(2000 * kMs);
  }
}

TEST(DataStall, AFlowThatStaysStillIsBlamedOnOnePathOnly) {
  Flows flows({0, 1, 2});
  flows.Run(5, Nothing);
  const auto stuck = [&](uint8_t slot) { return slot == flows[0].slot; };
  ASSERT_EQ(flows.Run(20, stuck).size(), 1u);
  flows[0].slot = 3;  // moved, and still without an answer
  EXPECT_TRUE(flows.Run(100, stuck).empty());
}

// Two jobs' queue pairs over four paths; the receiver of one is killed.
TEST(DataStall, AProcessWhosePeerDiedIsNoPath) {
  Flows apart({0, 1, 2, 3});
  Flows mixed({0, 1, 2, 3, 0, 1, 2, 3});
  for (size_t i = 0; i < 2; ++i) apart[i].process = 100, apart[i + 2].process = 200;
  for (size_t i = 0; i < 4; ++i) mixed[i].process = 100, mixed[i + 4].process = 200;
  for (Flows* flows : {&apart, &mixed}) {
    flows->Run(20, Nothing);
    flows->Kill(100);
    EXPECT_TRUE(flows->Run(200, Nothing).empty());
    EXPECT_EQ(flows->KeptFree(), 0);
  }
}

TEST(DataStall, APathThatLosesOneOfAProcesssFlowsIsLeftAndSoIsOneThatLosesTwoProcesses) {
  Flows one({0, 1, 2}), two({0, 0, 1});
  for (size_t i = 0; i < 3; ++i) one[i].process = 100, two[i].process = static_cast<uint32_t>(100 + i);
  for (Flows* flows : {&one, &two}) {
    flows->Run(20, Nothing);
    EXPECT_EQ(flows->Run(20, [](uint8_t slot) { return slot == 0; }).size(), 1u);
  }
}

// One that was acknowledged and has nothing under way just now.
TEST(DataStall, DataThatWasAcknowledgedOnThePathIsAVeto) {
  Flows flows({0, 0, 1});
  flows.Run(20, Nothing);
  flows.Lose(0);
  flows.AnswerAll(1);
  EXPECT_TRUE(flows.Run(50, Nothing).empty());
}

TEST(DataStall, HalfOfThePathsAreNeverTaken) {
  Flows flows({0, 1, 2, 3, 3, 3});
  flows.Run(5, Nothing);
  EXPECT_EQ(flows.Run(40, [](uint8_t slot) { return slot != 3; }).size(), 2u);
}

// A host without processor time: most of its flows wait, and one is lucky.
TEST(DataStall, WhereMoreStandStillElsewhereThanGoOnNoPathIsBlamed) {
  Flows flows({0, 0, 1, 1, 2, 2, 3});
  flows.Run(5, Nothing);
  EXPECT_TRUE(flows.Run(40, [](uint8_t slot) { return slot != 3; }).empty());
}

TEST(DataStall, FlowsWithoutAnythingUnderWaySayNothing) {
  Flows flows({0, 1});
  flows.Run(5, Nothing);
  flows[0].acked = flows[0].next;
  flows.Stop();
  EXPECT_TRUE(flows.Run(100, Nothing).empty());
}

}  // namespace
}  // namespace cw::control
