// SPDX-License-Identifier: Apache-2.0
//
// The parts that tell why flows are slow and what they carry, on maps in plain memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CausesPart : public ::testing::Test {
 protected:
  CausesPart() { causes_.SetRules(true, {}); }

  // A window in which a flow to 7 sends data and its receiver refuses some.
  void Window(uint64_t naks = 3) {
    FlowEntry& flow = host_.AddSent(7);
    flow.window_packets = 1000;
    flow.window_bytes = 4'000'000;
    flow.tx.flow.packets += 1000;
    flow.tx.flow.bytes += 4'000'000;
    flow.answers.known = true;
    flow.answers.seq_naks += naks;
    causes_.Look({.pairs = {{.pair = {host_.local, host_.remote}}}});
    causes_.Judge(now_ns_ += kSecond, 0);
  }

  OnePair host_;
  std::map<FlowKey, cw_flow> received_;
  absl::flat_hash_set<FlowKey> awaited_;
  Causes causes_{host_.flows,
                 host_.pairs,
                 host_.nics,
                 host_.mesh,
                 host_.store,
                 [this](const FlowKey& key) -> absl::StatusOr<cw_flow> {
                   const auto at = received_.find(key);
                   return at == received_.end() ? absl::StatusOr<cw_flow>(absl::NotFoundError("")) : at->second;
                 },
                 [this](const FlowKey& flow) { return flow == host_.FlowTo(7) ? "train" : ""; },
                 [this](int64_t) { return awaited_; },
                 host_.names,
                 host_.mail,
                 host_.events};
  int64_t now_ns_ = kSecond;
};

TEST_F(CausesPart, AsksTheReceiverWhatArrived) {
  Window();
  const std::vector<probe::GapReport> asked = host_.mail.Take<probe::GapReport>();
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_FALSE(asked[0].answer);
  ASSERT_THAT(asked[0].flows, SizeIs(1));
  EXPECT_EQ(asked[0].flows[0].qpn, 7u);
}

TEST_F(CausesPart, NotWantedAsksAndTellsNothing) {
  causes_.SetRules(false, {});
  for (int i = 0; i < 30; ++i) Window();
  EXPECT_THAT(host_.mail.all, IsEmpty());
  EXPECT_THAT(host_.events.all, IsEmpty());
}

TEST_F(CausesPart, AnswersOfFlowsThatItReceivesTenTimesASecondAtMost) {
  cw_flow& record = received_[{.src = host_.remote, .dst = host_.local, .dqpn = 9}];
  record.packets = 500;
  record.req.gaps = 2;
  record.resp.gaps = 1;
  const probe::GapReport question{.flows = {{.qpn = 9}, {.qpn = 10}}};
  causes_.OnGapReport(host_.pair(), question, kSecond);
  causes_.OnGapReport(host_.pair(), question, kSecond + kSecond / 20);
  const std::vector<probe::GapReport> told = host_.mail.Take<probe::GapReport>();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(told[0].answer);
  ASSERT_THAT(told[0].flows, SizeIs(2));
  EXPECT_TRUE(told[0].flows[0].known);
  EXPECT_EQ(told[0].flows[0].gaps, 3u);
  EXPECT_EQ(told[0].flows[0].packets, 500u);
  EXPECT_FALSE(told[0].flows[1].known);
  causes_.OnGapReport(host_.pair(), question, kSecond + kSecond / 5);
  EXPECT_THAT(host_.mail.Take<probe::GapReport>(), SizeIs(1));
}

TEST_F(CausesPart, ASlowReceiverIsToldWithThePeersNameAndTheJob) {
  for (int i = 0; i < 30; ++i) {
    host_.AddSent(7).answers.rnr_naks += 50;
    Window();
  }
  ASSERT_FALSE(host_.events.all.empty());
  const telemetry::Event& told = host_.events.all[0];
  EXPECT_EQ(told.type, "cause");
  EXPECT_EQ(told.peer, "h2");
  EXPECT_EQ(told.flow, host_.FlowTo(7).Id().ToString());
  EXPECT_THAT(told.text, HasSubstr("queue pair to h2 qp 0x7"));
  EXPECT_THAT(told.evidence, testing::Contains(testing::Pair("job", "train")));
}

TEST_F(CausesPart, AQueuePairThatStopsWithPacketsUnacknowledgedIsAnAlertThatDoesNotEnd) {
  cw_tx_flow& record = host_.AddSent(7).tx;
  record.acked_valid = 1;
  record.acked_psn = 100;
  record.flow.req.next = 200;
  record.flow.req.packets = 1000;
  record.flow.req.seen = 1;
  for (int i = 0; i < 5; ++i) Window(0);
  auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].text, HasSubstr("no acknowledgements"));
  EXPECT_EQ(events[0].severity, telemetry::Severity::kNotice);
  const auto silent = [&] {
    host_.flows.sent[host_.FlowTo(7)].window_packets = host_.flows.sent[host_.FlowTo(7)].window_bytes = 0;
    causes_.Look({.pairs = {{.pair = {host_.local, host_.remote}}}});
    causes_.Judge(now_ns_ += kSecond, 0);
  };
  for (int i = 0; i < 200; ++i) silent();
  events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].text, HasSubstr("it stopped with 100 packets unacknowledged"));
  EXPECT_EQ(events[0].severity, telemetry::Severity::kAlert);
}

// As README's own traffic does: it sends 10 of 390 Mbit/s, because it has no more to send.
TEST_F(CausesPart, ASenderThatNobodyWaitsForIsShownAndNotTold) {
  host_.nics.front().rate_bps = 390e6;
  for (int i = 0; i < 10; ++i) Window(0);
  const PairKey pair{host_.local, host_.remote};
  EXPECT_EQ(causes_.book().Of(pair, host_.FlowTo(7)).cause, control::Cause::kSlowSender);
  EXPECT_THAT(host_.events.all, IsEmpty());
  awaited_ = {host_.FlowTo(7)};
  for (int i = 0; i < 5; ++i) Window(0);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("slow sender, a collective waits for it: it sends"));
  EXPECT_THAT(host_.events.all[0].evidence, testing::Contains(testing::Pair("cause", "slow sender")));
  awaited_.clear();
  for (int i = 0; i < 5; ++i) Window(0);
  ASSERT_THAT(host_.events.all, SizeIs(2));
  EXPECT_THAT(host_.events.all[1].evidence, testing::Contains(testing::Pair("cause", "none")));
}

class GapsPart : public ::testing::Test {
 protected:
  GapsPart() {
    FlowEntry& flow = host_.AddSent(7);
    flow.tx.slot = 1;
    flow.tx.native_slot = 2;
    flow.tx.port = 50'000;
  }

  // Seconds in which the flow's packets take so long on its path, and the probes of slot 1 take 20 µs there. How many
  // events they brought.
  size_t Run(int seconds, int64_t flow_ns, bool acts = true) {
    FlowEntry& flow = host_.flows.sent.at(host_.FlowTo(7));
    for (int s = 0; s < seconds; ++s) {
      for (int i = 0; i < 100; ++i) {
        now_ns_ += kSecond / 100;
        host_.pair().slot[1].forward.AddProbe(now_ns_, 20'000);
        flow.AddDelay(now_ns_, 1, flow_ns);
      }
      gaps_.Judge(now_ns_, acts);
    }
    return host_.events.Take().size();
  }

  OnePair host_;
  CauseBook causes_;
  Gaps gaps_{host_.flows,
             host_.pairs,
             host_.nics,
             host_.mesh,
             [](uint32_t, uint8_t) { return Gaps::PathFacts{.hops = 3, .ports_choose = true}; },
             causes_,
             host_.names,
             host_.events};
  int64_t now_ns_ = 100 * kSecond;
};

TEST_F(GapsPart, ToldOnceWhenItHasLastedAndOnceWhenItIsOver) {
  EXPECT_EQ(Run(60, 90'000), 1u);
  v1::Flow flow;
  gaps_.Fill(host_.FlowTo(7), now_ns_, flow);
  EXPECT_TRUE(flow.gap().finding());
  EXPECT_NEAR(flow.gap().flow_p50_ns(), 90'000, 5'000);
  EXPECT_EQ(Run(60, 20'000), 1u);
}

TEST_F(GapsPart, AFlowThatIsNotWhereItWasSteeredIsNotHeldAgainstThatPath) {
  EXPECT_EQ(Run(60, 90'000, /*acts=*/false), 0u);
  v1::Flow flow;
  gaps_.Fill(host_.FlowTo(7), now_ns_, flow);
  EXPECT_FALSE(flow.has_gap());
}

TEST(JobsPart, AQueuePairIsTheProcesssOwnOrTheOnlyOne) {
  const Addr one = Addr::FromV4(1), two = Addr::FromV4(2);
  rdma::QpRegistry qps;
  for (const rdma::QpInfo& qp : {rdma::QpInfo{.lqpn = 5, .rqpn = 1, .laddr = one, .pid = 10},
                                 {.lqpn = 5, .rqpn = 2, .laddr = two, .pid = 11},
                                 {.lqpn = 6, .rqpn = 3, .laddr = one, .pid = 12},
                                 {.lqpn = 7, .laddr = one, .pid = 10}})
    qps.Register(qp);
  const QpsByNumber known(qps);
  ASSERT_NE(known.Find(11, 5), nullptr);
  EXPECT_EQ(known.Find(11, 5)->rqpn, 2u);
  EXPECT_EQ(known.Find(99, 5), nullptr) << "two have this number";
  EXPECT_NE(known.Find(99, 6), nullptr);
  EXPECT_EQ(known.Find(10, 7), nullptr) << "not connected";
}

class ChunksPart : public ::testing::Test {
 protected:
  void Hold(size_t count) { host_.pair().chunks_out.resize(count, {.operation = 1, .qpn = 9}); }

  OnePair host_;
  profile::Profiles profiles_{profile::ProfileOptions{}};
  rdma::QpRegistry qps_;
  FleetClock fleet_{"h1", 1};
  ManualClock clock_{kSecond};
  Chunks chunks_{profiles_, qps_, fleet_, clock_, clock_, host_.pairs, host_.mesh, host_.mail};
};

TEST_F(ChunksPart, ArrivalsGoOnceInMessagesThatHoldThem) {
  chunks_.Read();
  Hold(probe::kMaxChunkArrivalsPerMessage + 3);
  chunks_.Send(host_.pair());
  const std::vector<probe::ChunkArrivals> sent = host_.mail.Take<probe::ChunkArrivals>();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_THAT(sent[0].arrivals, SizeIs(probe::kMaxChunkArrivalsPerMessage));
  EXPECT_THAT(sent[1].arrivals, SizeIs(3));
  EXPECT_EQ(sent[0].timeline, fleet_.Claim().timeline);
  chunks_.Send(host_.pair());
  EXPECT_THAT(host_.mail.all, IsEmpty());
}

TEST_F(ChunksPart, ArrivalsByAnotherFleetTimeAreNotTold) {
  chunks_.Read();
  Hold(3);
  const uint32_t before = fleet_.now().epoch;
  fleet_.Round(kSecond, {}, {});
  fleet_.Disrupted(2 * kSecond);
  fleet_.Round(3 * kSecond, {}, {});
  ASSERT_NE(fleet_.now().epoch, before);
  chunks_.Send(host_.pair());
  EXPECT_THAT(host_.mail.all, IsEmpty());
}

}  // namespace
}  // namespace cw::agent
