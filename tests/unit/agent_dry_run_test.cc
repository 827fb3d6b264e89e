// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DryRunPart : public ::testing::Test {
 protected:
  DryRunPart() { std::filesystem::remove(kFile); }
  ~DryRunPart() override { std::filesystem::remove(kFile); }

  std::vector<report::Item> Written() {
    std::vector<report::Item> items;
    std::ifstream file(kFile);
    for (std::string line; std::getline(file, line);) items.push_back(*report::FromLine(line));
    return items;
  }
  void Die(uint32_t qpn) {
    cw_ev_move move{.type = CW_EV_MOVE};
    move.key = ToMap(host_.FlowTo(qpn));
    move.pair = host_.index;
    move.from_slot = 1;
    move.to_slot = 2;
    dry_run_.TellMove(move, {});
  }

  const std::string kFile = testing::TempDir() + "/dry_run_items.json";
  OnePair host_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  probe::Hops hops_ = {probe::TestAddr("10.9.0.1"), probe::TestAddr("10.9.0.2"), Addr()};
  DryRun dry_run_{
      host_.pairs,
      host_.flows,
      qps_,
      host_.mesh,
      host_.names,
      clock_,
      host_.events,
      {.hops = [this](uint32_t, uint8_t slot) { return slot == 1 ? &hops_ : nullptr; }, .acts = [] { return false; }}};
};

TEST_F(DryRunPart, WhereNoReportIsWantedNothingIsWritten) {
  dry_run_.Open("", 1 << 20);
  Die(7);
  EXPECT_FALSE(std::filesystem::exists(kFile));
  dry_run_.Open("/nowhere/at/all", 1 << 20);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("what is only observed is not reported"));
}

TEST_F(DryRunPart, ADeathIsWrittenAgainWithItsHarmWhenThePathAnswers) {
  dry_run_.Open(kFile, 1 << 20);
  host_.AddSent(7).tx.native_slot = 1;
  host_.mesh.shared(host_.index)->slot[1].state = CW_SLOT_DEAD;
  Die(7);
  dry_run_.ExpireDeaths();
  ASSERT_THAT(Written(), SizeIs(1)) << "the path is dead still";
  EXPECT_FALSE(Written()[0].stall_ms.has_value());
  EXPECT_THAT(Written()[0].links, ElementsAre("10.9.0.2", "*")) << "but for our own";
  clock_.Advance(kSecond / 4);
  dry_run_.EndDeaths(host_.index, 1);
  ASSERT_THAT(Written(), SizeIs(2));
  EXPECT_EQ(Written()[1].stall_ms, 250) << "by a clock that nobody sets";
  dry_run_.EndDeaths(host_.index, 1);
  EXPECT_THAT(Written(), SizeIs(2)) << "it is over";
}

TEST_F(DryRunPart, AlikeDecisionsAreCountedAndToldOnceInAWhile) {
  dry_run_.Open(kFile, 1 << 20);
  dry_run_.SetWindow({5, 17});
  const control::Move move{.pair = host_.pair().key, .flow = host_.FlowTo(7), .from = 1, .to = 2, .gain = 2};
  dry_run_.TellMove(move);
  dry_run_.TellMove(move);
  ASSERT_THAT(Written(), SizeIs(1));
  EXPECT_EQ(Written()[0].window, 17);
  EXPECT_EQ(Written()[0].goodput_share, 0.5);
  clock_.Advance(report::Repeats::kAgainNs + kSecond);
  dry_run_.TellMove(move);
  ASSERT_THAT(Written(), SizeIs(2));
  EXPECT_EQ(Written()[1].times, 2u);
}

TEST_F(DryRunPart, ALossyPathIsToldForEachOfItsFlows) {
  dry_run_.Open(kFile, 1 << 20);
  host_.AddSent(7).tx.native_slot = 1;
  host_.AddSent(8).tx.native_slot = 2;
  dry_run_.TellLoss(host_.pair(), 1, 0.25, {});
  ASSERT_THAT(Written(), SizeIs(1));
  EXPECT_EQ(Written()[0].flow, host_.FlowTo(7).Id().ToString());
  EXPECT_EQ(Written()[0].goodput_share, 0.25);
}

}  // namespace
}  // namespace cw::agent
