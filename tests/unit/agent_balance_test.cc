// SPDX-License-Identifier: Apache-2.0
//
// Moves for balance: from a window's observation by the last look to the kernel's wish, and the breaker that undoes
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/balance/window.h"
#include "userspace/control/contention_rules.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BalanceParts : public ::testing::Test {
 protected:
  BalanceParts() { host_.AddPaths({100, 101, 102}); }

  FlowKey AddFlow(uint32_t qpn, uint8_t slot) { return host_.AddFlow(records_, qpn, slot); }
  control::Move MoveOf(const FlowKey& flow, uint8_t from, uint8_t to, uint8_t second = CW_SLOT_NONE) {
    control::Move move;
    move.pair = host_.pair().key;
    move.flow = flow;
    move.from = from;
    move.to = to;
    move.second = second;
    move.why = "it shares";
    return move;
  }
  cw_ev_move Made(const FlowKey& flow, uint8_t from, uint8_t to, uint8_t reason = CW_MOVE_FORCED) {
    cw_ev_move move{.type = CW_EV_MOVE, .from_slot = from, .to_slot = to, .reason = reason};
    move.key = ToMap(flow);
    move.pair = static_cast<uint16_t>(host_.index);
    return move;
  }
  uint8_t Wish(const FlowKey& flow) { return records_.sent[flow].want_slot; }

  OnePair host_;
  MemoryFlows records_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  ManualTimers timers_;
  Journal journal_{{}};
  DryRun dry_run_{host_.pairs, host_.flows, qps_, host_.mesh, host_.names, clock_, host_.events, {}};
  Allowed allowed_ = Mode::kOptimize;
  bool paths_known_ = true;
  int hurried_ = 0;
  control::ContentionState rule_{control::ContentionRules{}, 1};
  Breaker breaker_{true,
                   absl::Minutes(10),
                   host_.pairs,
                   host_.flows,
                   records_,
                   host_.names,
                   clock_,
                   journal_,
                   {.allowed = [this] { return allowed_; }, .take_back = [this] { moves_.TakeBack(); }}};
  BalanceMoves moves_{host_.pairs,
                      records_,
                      host_.mesh,
                      rule_,
                      breaker_,
                      host_.names,
                      clock_,
                      clock_,
                      timers_,
                      dry_run_,
                      host_.events,
                      {.allowed = [this] { return allowed_; },
                       .paths_known = [this](uint32_t) { return paths_known_; },
                       .look = [] { return absl::Milliseconds(4); },
                       .hurry = [this](uint32_t, absl::Duration) { ++hurried_; },
                       .read_probes = [] {}}};
  ContentionWindow window_{rule_,
                           host_.pairs,
                           host_.flows,
                           host_.mesh,
                           host_.names,
                           moves_,
                           dry_run_,
                           host_.events,
                           {.paths_known = [this](uint32_t) { return paths_known_; },
                            .hops = [](uint32_t, uint8_t) { return nullptr; },
                            .path_bps = [] { return 1e9; }}};
};

TEST_F(BalanceParts, AMoveWithOneCandidateIsAskedForAtOnce) {
  const FlowKey flow = AddFlow(7, 0);
  moves_.Apply(MoveOf(flow, 0, 1));
  EXPECT_EQ(Wish(flow), 1);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("moving queue pair to h2 qp 0x7 from path 0 to path 1: it shares"));
  EXPECT_TRUE(moves_.OnMade(Made(flow, 0, 1)));
  EXPECT_FALSE(moves_.OnMade(Made(flow, 0, 1))) << "once";
}

TEST_F(BalanceParts, TwoCandidatesAreProbedOnceMoreAndTheBetterOneIsTaken) {
  const FlowKey flow = AddFlow(7, 0);
  moves_.Apply(MoveOf(flow, 0, 1, 2));
  EXPECT_EQ(Wish(flow), CW_SLOT_NONE);
  EXPECT_EQ(hurried_, 1);
  for (int i = 0; i < 4; ++i) {
    moves_.OnProbe(host_.index, 1, clock_.NowNs(), 900'000);
    moves_.OnProbe(host_.index, 2, clock_.NowNs(), 10'000);
  }
  clock_.Advance(4 * kMs);
  timers_.Run();
  EXPECT_EQ(Wish(flow), 2);
  EXPECT_THAT(moves_.TakeSeen(), SizeIs(1));
}

TEST_F(BalanceParts, WhatAnOperatorLockedMeanwhileIsNotMoved) {
  const FlowKey flow = AddFlow(7, 0);
  moves_.Apply(MoveOf(flow, 0, 1, 2));
  records_.sent[flow].flags = CW_STEER_LOCKED;
  moves_.Settle(INT64_MAX);
  EXPECT_EQ(Wish(flow), CW_SLOT_NONE);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("is not moved from path 0: it was moved, locked or ended"));
}

TEST_F(BalanceParts, WhatIsOnlyObservedIsToldOnceInAWhile) {
  allowed_ = Mode::kObserve;
  const FlowKey flow = AddFlow(7, 0);
  moves_.Apply(MoveOf(flow, 0, 1, 2));
  moves_.Apply(MoveOf(flow, 0, 1, 2));
  EXPECT_EQ(hurried_, 0);
  EXPECT_EQ(Wish(flow), CW_SLOT_NONE);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("would move"));
}

TEST_F(BalanceParts, AWishThatWentWithItsPathIsNoneOfBalance) {
  const FlowKey flow = AddFlow(7, 0);
  moves_.Apply(MoveOf(flow, 0, 1));
  EXPECT_FALSE(moves_.OnMade(Made(flow, 0, 1, CW_MOVE_DEAD)));
}

TEST_F(BalanceParts, AWindowObservesDataFlowsAndQueuesAndBeginsAnew) {
  const FlowKey flow = AddFlow(7, 1);
  host_.flows.sent[flow].window_bytes = 100'000;
  host_.flows.sent[flow].window_packets = 100;
  host_.flows.sent[AddFlow(8, 1)].window_packets = 100;  // acknowledgements
  host_.pair().slot[1].window.owd_ns = {5000, 5000};
  window_.Begin(clock_.NowNs());
  clock_.Advance(40 * kMs);
  window_.Observe(clock_.NowNs());
  const control::Observation& seen = window_.seen();
  EXPECT_EQ(seen.window_ns, 40 * kMs);
  ASSERT_THAT(seen.pairs, SizeIs(1));
  EXPECT_THAT(seen.pairs[0].paths, SizeIs(3));
  EXPECT_EQ(seen.pairs[0].paths[1].queue_samples, 2);
  ASSERT_THAT(seen.pairs[0].flows, SizeIs(1));
  EXPECT_EQ(seen.pairs[0].flows[0].key, flow);
  EXPECT_EQ(window_.began_ns(), clock_.NowNs());
  EXPECT_THAT(host_.pair().slot[1].window.owd_ns, IsEmpty());
  window_.Decide();
}

TEST_F(BalanceParts, MovesThatDoHarmTripTheBreakerWhichUndoesThem) {
  std::vector<FlowKey> flows;
  for (uint32_t qpn = 1; qpn <= 4; ++qpn) flows.push_back(AddFlow(qpn, 0));
  uint64_t harm = 0;
  const auto run = [&](int ms) {
    for (int i = 0; i < ms / 50; ++i) {
      clock_.Advance(50 * kMs);
      for (size_t f = 0; f < flows.size(); ++f) {
        FlowEntry& entry = host_.flows.sent[flows[f]];
        entry.answers.known = true;
        ++entry.answers.acks;
        entry.tx.flow.bytes += 100'000;
        if (f < 2) entry.answers.seq_naks += harm;
      }
      breaker_.Step(clock_.NowNs());
    }
  };
  run(3000);
  for (size_t f : {0, 1}) {
    moves_.Apply(MoveOf(flows[f], 0, 1));
    host_.flows.sent[flows[f]].tx.slot = 1;
    const cw_ev_move made = Made(flows[f], 0, 1, CW_MOVE_IDLE);
    ASSERT_TRUE(moves_.OnMade(made));
    breaker_.OnMoved(made);
  }
  moves_.Apply(MoveOf(flows[2], 0, 1));
  EXPECT_TRUE(breaker_.MayBalance());
  harm = 20;
  run(3000);
  EXPECT_FALSE(breaker_.MayBalance());
  EXPECT_EQ(Wish(flows[0]), 0) << "it goes back";
  EXPECT_EQ(records_.sent[flows[0]].want_force, 1);
  EXPECT_EQ(Wish(flows[2]), CW_SLOT_NONE) << "what the kernel had not made is taken back";
  v1::BreakerStatus status;
  breaker_.AddTo(status, clock_.NowNs());
  EXPECT_TRUE(status.tripped());
  EXPECT_EQ(status.trips(), 1u);
  EXPECT_THAT(breaker_.Reset({}).effect(), HasSubstr("armed again, and moves for balance are made"));
  EXPECT_TRUE(breaker_.MayBalance());
}

TEST_F(BalanceParts, WithoutABreakerNothingIsJudged) {
  Breaker none(false, absl::ZeroDuration(), host_.pairs, host_.flows, records_, host_.names, clock_, journal_,
               {.allowed = [this] { return allowed_; }, .take_back = [] {}});
  none.OnMoved(Made(AddFlow(7, 0), 0, 1));
  none.Step(clock_.NowNs());
  EXPECT_TRUE(none.MayBalance());
  EXPECT_THAT(none.Reset({}).effect(), HasSubstr("there is no breaker"));
}

}  // namespace
}  // namespace cw::agent
