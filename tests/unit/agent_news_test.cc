// SPDX-License-Identifier: Apache-2.0
//
// What the prober, path discovery and the kernel's program tell: answered probes, slots that mean other paths, flows
// that took other ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/move_news.h"
#include "userspace/agent/paths/fabric_news.h"
#include "userspace/agent/paths/probe_news.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kQpn = 0x11;

class FabricNewsPart : public ::testing::Test {
 protected:
  FabricNewsPart() { host_.AddPaths({100, 101}); }
  FabricNews Make(bool leaves) {
    return {host_.pairs,
            host_.flows,
            records_,
            links_,
            clock_,
            host_.events,
            {.blind = [this](PairState&) { ++turned_blind_; },
             .leave = [leaves](const PairState&, uint8_t, uint16_t) { return leaves; },
             .native = [this](uint32_t, const probe::NativeChange& change) { natives_.push_back(change.port); }}};
  }

  OnePair host_;
  MemoryFlows records_;
  ManualClock clock_{1000 * kSecond};
  LinkFlaps links_{testing::TempDir() + "/news_no_outages.json",
                   "boot",
                   host_.pairs,
                   host_.mesh,
                   clock_,
                   clock_,
                   host_.events,
                   {.hops = [](uint32_t, uint8_t) { return nullptr; },
                    .interval_ns = [](uint32_t) { return kMs; },
                    .read_probes = [] {},
                    .damp_anew = [] {},
                    .after = [](absl::Duration, std::function<void()>) {}}};
  int turned_blind_ = 0;
  std::vector<uint16_t> natives_;
};

TEST_F(FabricNewsPart, WhereProbesDoNotTakeTheFlowsPathsItIsAnAlertOnce) {
  FabricNews news = Make(true);
  news.OnHashing(host_.index, probe::Hashing::kQpn);
  news.OnHashing(host_.index, probe::Hashing::kQpn);
  EXPECT_EQ(turned_blind_, 1);
  EXPECT_TRUE(host_.pair().blind);
  const std::vector<telemetry::Event> told = host_.events.Take();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(told[0].text, HasSubstr("hash on the destination QPN"));
  news.OnHashing(host_.index, probe::Hashing::kPorts);
  EXPECT_EQ(turned_blind_, 2);
  EXPECT_FALSE(host_.pair().blind);
}

TEST_F(FabricNewsPart, ASlotThatMeansAnotherPathForgetsTheOldOneAndItsFlowsGoHomeIfNobodyMovesThem) {
  const FlowKey flow = host_.AddFlow(records_, kQpn, 1);
  host_.pair().slot[1].queue_ns = 5000;
  host_.pair().slot[1].answered_ns = 7;
  probe::SlotUpdate update;
  update.slots.push_back({.slot = 1, .old_port = 101, .new_port = 200});
  update.natives.push_back({.port = 4711});
  Make(true).OnSlotUpdate(host_.index, update);
  EXPECT_EQ(host_.pair().slot[1].queue_ns, 0);
  EXPECT_EQ(host_.pair().slot[1].answered_ns, 0);
  EXPECT_EQ(records_.sent[flow].slot, 1) << "somebody moves it";
  EXPECT_THAT(natives_, ElementsAre(4711));
  Make(false).OnSlotUpdate(host_.index, update);
  EXPECT_EQ(records_.sent[flow].slot, CW_SLOT_NONE);
  EXPECT_EQ(records_.sent[flow].port, 0);
}

TEST_F(FabricNewsPart, OfAPairThatIsGoneNothingIsTold) {
  FabricNews news = Make(true);
  news.OnHashing(host_.index + 1, probe::Hashing::kSprayed);
  news.OnTable(host_.index + 1, {});
  EXPECT_THAT(host_.events.Take(), IsEmpty());
}

class ProbeNewsPart : public ::testing::Test {
 protected:
  ProbeNewsPart() { host_.AddPaths({100, 101}); }
  // One way of 3 us, back 4 us, between clocks that agree.
  cw_ev_probe Answered(uint8_t slot) {
    cw_ev_probe probe{.type = CW_EV_PROBE, .slot = slot, .rslot = 0};
    probe.pair = static_cast<uint16_t>(host_.index);
    probe.round = 40;
    probe.t1 = static_cast<uint64_t>(clock_.NowNs());
    probe.t2 = probe.t1 + 3000;
    probe.t3 = probe.t2 + 1000;
    probe.t4 = probe.t3 + 4000;
    return probe;
  }

  OnePair host_;
  Vitals vitals_;
  ManualClock clock_{1000 * kSecond};
  std::vector<int64_t> delays_;
  int answered_ = 0;
  ProbeNews news_{host_.pairs,
                  host_.store,
                  host_.mesh,
                  vitals_,
                  clock_,
                  {.by_verbs = [](const PairState&) { return false; },
                   .answered = [this](uint32_t, uint8_t) { ++answered_; },
                   .of_silent = [](const PairState&, SlotState&, const cw_ev_probe&) { ADD_FAILURE(); },
                   .delayed = [this](uint32_t, uint8_t, int64_t, int64_t delay_ns) { delays_.push_back(delay_ns); },
                   .ring = [] { return nullptr; }}};
};

TEST_F(ProbeNewsPart, UntilTheClocksAreKnownAProbeIsAnsweredAndNoMore) {
  news_.OnProbe(Answered(1));
  EXPECT_EQ(answered_, 1);
  EXPECT_THAT(delays_, IsEmpty());
  EXPECT_EQ(vitals_.newest_data_ns, clock_.NowNs());
  EXPECT_EQ(host_.pair().slot[1].counted_round, 39u) << "rounds before it are no losses";
  EXPECT_EQ(host_.pair().slot[1].answered_ns, clock_.NowNs());
  EXPECT_EQ(host_.pair().slot[0].answered_ns, 0);
}

TEST_F(ProbeNewsPart, ThenItSaysTheDelayOfItsPathAndOfTheWayBack) {
  host_.pair().estimate.settled = true;
  news_.OnProbe(Answered(1));
  ASSERT_THAT(delays_, SizeIs(1));
  EXPECT_EQ(host_.pair().slot[1].window.owd_ns.size(), 1u);
  EXPECT_EQ(host_.pair().slot[1].window.owd_ns[0], delays_[0]);
  EXPECT_NE(host_.pair().slot[0].reverse.BaseNs(), INT64_MAX);
}

TEST_F(ProbeNewsPart, WhatCannotBeIsNotCounted) {
  cw_ev_probe probe = Answered(CW_MAX_SLOTS);
  news_.OnProbe(probe);
  probe = Answered(0);
  probe.pair = static_cast<uint16_t>(host_.index + 1);
  news_.OnProbe(probe);
  EXPECT_EQ(answered_, 0);
}

TEST_F(ProbeNewsPart, WhatWasSentCountsFromTheFirstAnswerOn) {
  const auto sent = [this](uint8_t slot) { return host_.pair().slot[slot].forward.Window(clock_.NowNs(), 10).sent; };
  host_.shared().slot[1].state = CW_SLOT_NEW;
  host_.shared().cur_round = 30;
  news_.CountSent(host_.pair(), clock_.NowNs());
  EXPECT_EQ(sent(1), 0u) << "its peer may not be there";
  news_.OnProbe(Answered(1));  // round 40
  clock_.Advance(kSecond);
  host_.shared().cur_round = 50;
  news_.CountSent(host_.pair(), clock_.NowNs());
  EXPECT_EQ(sent(1), 11u) << "rounds 40 to 50";
  clock_.Advance(kSecond);
  host_.shared().cur_round = 5;
  news_.CountSent(host_.pair(), clock_.NowNs());
  EXPECT_EQ(sent(1), 11u) << "a numbering that began anew";
}

class MoveNewsPart : public ::testing::Test {
 protected:
  cw_ev_move Move(uint8_t type, uint8_t reason, bool dry) {
    cw_ev_move move{.type = type};
    move.pair = static_cast<uint16_t>(host_.index);
    move.reason = reason;
    move.dry = dry;
    move.from_slot = 0;
    move.to_slot = 1;
    move.from_port = 100;
    move.to_port = 101;
    move.key = ToMap(host_.FlowTo(kQpn));
    return move;
  }

  OnePair host_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  DryRun dry_run_{host_.pairs, host_.flows, qps_, host_.mesh, host_.names, clock_, host_.events, {}};
  int appeared_ = 0, made_ = 0;
  MoveNews news_{host_.names,
                 dry_run_,
                 host_.events,
                 {.appeared = [this] { ++appeared_; }, .made = [this](const cw_ev_move&) { ++made_; }}};
};

TEST_F(MoveNewsPart, AMoveIsToldWithWhereItWentAndWhy) {
  news_.OnMove(Move(CW_EV_MOVE, CW_MOVE_DEAD, false));
  EXPECT_EQ(made_, 1);
  const std::vector<telemetry::Event> told = host_.events.Take();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].type, "move");
  EXPECT_EQ(told[0].peer, "h2");
  EXPECT_THAT(told[0].text, HasSubstr("moved from path 0 to path 1, udp-port 101: "));
  EXPECT_EQ(appeared_, 0);
}

TEST_F(MoveNewsPart, AFlowThatAppearsWakesTheLoopAndMakesNoMove) {
  news_.OnMove(Move(CW_EV_FLOW, 0, false));
  EXPECT_EQ(appeared_, 1);
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(host_.events.Take().at(0).type, "flow");
}

TEST_F(MoveNewsPart, WhatWouldHaveBeenDoneIsNotTakenForDone) {
  news_.OnMove(Move(CW_EV_MOVE, CW_MOVE_DEAD, true));
  EXPECT_EQ(made_, 0);
  const std::vector<telemetry::Event> told = host_.events.Take();
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(told.back().dry);
  EXPECT_THAT(told.back().text, HasSubstr("would move"));
}

}  // namespace
}  // namespace cw::agent
