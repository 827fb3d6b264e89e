// SPDX-License-Identifier: Apache-2.0
// What slow and standing collectives cost.
#include "userspace/fleet/jobs/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kSecondNs = 1'000'000'000, kThenNs = 1'800'000'000 * kSecondNs;

class CostTest : public ::testing::Test {
 protected:
  // A rank's word of an AllReduce among eight that took so long, with one second usual.
  pb::Collective& Tell(const std::string& host, uint64_t seq, double took_s, bool network) {
    pb::Collective& c = messages_.emplace_back();
    c.set_job_id("aa");
    c.set_label("train");
    c.set_function("AllReduce");
    c.set_seq(seq);
    c.set_peer(-1);
    c.set_ranks(8);
    c.set_duration_ns(took_s * 1e9);
    c.set_usual_ns(1e9);
    c.set_network(network);
    if (network) {
      c.set_held_qpn(7);
      pb::CollectiveQp& qp = *c.add_peers()->add_qps();
      qp.set_qpn(7);
      qp.set_peer("h9");
      qp.add_hops("10.1.0.1");
      qp.add_hops("10.2.0.1");
    }
    told_.push_back({host, &c});
    return c;
  }
  pb::FleetCostReply Cost() {
    CostBook book(findings_, topology_);
    for (const auto& [host, c] : told_)
      EXPECT_TRUE(book.Add(host, *c, kThenNs - 10 * kSecondNs, kThenNs, decided_[host]));
    return book.Sum();
  }

  std::deque<pb::Collective> messages_;
  std::vector<std::pair<std::string, const pb::Collective*>> told_;
  std::map<std::string, DryMoves> decided_;  // by host
  std::vector<Finding> findings_;
  Topology topology_;
};

TEST_F(CostTest, ACollectiveCountsOnceAsItsWorstRankHasIt) {
  Tell("h1", 1, 11, true);
  Tell("h2", 1, 31, true);
  Tell("h3", 1, 21, true);
  Tell("h1", 2, 7, true);
  const pb::FleetCostReply reply = Cost();
  ASSERT_EQ(reply.costs_size(), 2) << "two ways";
  EXPECT_EQ(reply.costs(0).job(), "train");
  EXPECT_EQ(reply.costs(0).where(), "h2 to h9 by 10.1.0.1 10.2.0.1");
  EXPECT_EQ(reply.costs(0).collectives(), 1u);
  EXPECT_DOUBLE_EQ(reply.costs(0).lost_s(), 30);
  EXPECT_DOUBLE_EQ(reply.costs(0).gpu_hours(), 30.0 * 8 / 3600);
  EXPECT_DOUBLE_EQ(reply.costs(1).lost_s(), 6);
}

TEST_F(CostTest, WhatHeldItBackIsTheFindingOfThatTimeOnItsWay) {
  const Addr port = Addr::Parse("10.2.0.1").value(), other = Addr::Parse("10.3.0.1").value();
  findings_ = {{.id = 5, .cause = Cause::kLinkGrey, .scope = "link x", .links = {{other, port}}, .start_ns = kThenNs},
               {.id = 6, .cause = Cause::kLinkDead, .scope = "link y", .links = {{port, other}}, .start_ns = kThenNs}};
  Tell("h1", 1, 11, true);
  Tell("h1", 2, 2, false);
  pb::FleetCostReply reply = Cost();
  ASSERT_EQ(reply.costs_size(), 2);
  EXPECT_EQ(reply.costs(0).where(), "link grey: link x");
  EXPECT_EQ(reply.costs(0).finding(), IdText(5));
  EXPECT_TRUE(reply.costs(0).network());
  EXPECT_EQ(reply.costs(1).where(), "not the network");
  EXPECT_FALSE(reply.costs(1).network());
  findings_[0].end_ns = kThenNs - 22 * kSecondNs;  // before it began
  EXPECT_EQ(Cost().costs(0).finding(), "");
  findings_[0].end_ns = 0;
  findings_[0].start_ns = kThenNs + 120 * kSecondNs;  // long after it
  EXPECT_EQ(Cost().costs(0).finding(), "");
}

TEST_F(CostTest, WhatCanHoldAQueuePairBackIsNamedBeforeWhatMay) {
  const Addr port = Addr::Parse("10.2.0.1").value(), other = Addr::Parse("10.3.0.1").value();
  findings_ = {{.id = 3, .cause = Cause::kClock, .scope = "host h1", .start_ns = kThenNs - 3, .hosts = {"h1"}}};
  Tell("h1", 1, 11, true);
  EXPECT_EQ(Cost().costs(0).finding(), "") << "a wrong clock holds nothing back";
  findings_.push_back(
      {.id = 4, .cause = Cause::kSlowSender, .scope = "host h1", .start_ns = kThenNs - 2, .hosts = {"h1"}});
  EXPECT_EQ(Cost().costs(0).finding(), IdText(4));
  findings_.push_back(
      {.id = 5, .cause = Cause::kLinkDead, .scope = "link x", .links = {{other, port}}, .start_ns = kThenNs});
  EXPECT_EQ(Cost().costs(0).finding(), IdText(5));
}

TEST_F(CostTest, WhatWasNotSlowerThanUsualCostsNothing) {
  Tell("h1", 1, 0.5, false);
  EXPECT_EQ(Cost().costs_size(), 0);
  Tell("h1", 2, 11, false).set_usual_ns(0);  // it stands
  EXPECT_DOUBLE_EQ(Cost().costs(0).lost_s(), 11);
}

TEST_F(CostTest, ASwitchThatNobodyKnowsAnyMoreIsNamedWhereItAffectedTheJob) {
  findings_ = {
      {.id = 7, .cause = Cause::kSwitchDead, .scope = "switch spine1", .start_ns = kThenNs, .jobs = {"train"}}};
  Tell("h1", 1, 11, true);
  EXPECT_EQ(Cost().costs(0).where(), "switch dead: switch spine1");
}

TEST_F(CostTest, SendsCountAtEachEndAndEachTime) {
  for (const char* host : {"h1", "h2"}) {
    pb::Collective& c = Tell(host, 0, 11, false);
    c.set_function("Send");
    c.set_peer(1);
  }
  EXPECT_DOUBLE_EQ(Cost().costs(0).gpu_hours(), 20.0 / 3600);
  CostBook book({}, topology_);
  for (int64_t at : {0, 100}) EXPECT_TRUE(book.Add("h1", messages_[0], kThenNs, kThenNs + at * kSecondNs, {}));
  EXPECT_EQ(book.Sum().costs(0).collectives(), 1u);
  EXPECT_TRUE(book.Add("h1", messages_[0], kThenNs + 100 * kSecondNs, kThenNs + 110 * kSecondNs, {}));
  EXPECT_EQ(book.Sum().costs(0).collectives(), 2u);
}

// The rank's queue pair has flow f7, on path 2 of its pair. It began 11 s before it was told, and took so long.
constexpr char kPair[] = "10.0.0.1 > 10.0.1.1";

pb::Collective& OnPath(pb::Collective& c, double begun_ago_s = 11) {
  pb::CollectiveQp& qp = *c.mutable_peers(0)->mutable_qps(0);
  qp.set_flow("f7");
  qp.set_slot(2);
  qp.set_pair(kPair);
  c.set_enqueued_ago_s(begun_ago_s);
  return c;
}

struct Said {
  const char* type;
  bool dry = true;
  bool alert = false;
  const char* flow = "";
  std::vector<std::pair<const char*, const char*>> evidence;
  int slot = 2;
  const char* pair = kPair;
};
const Said kDead{.type = "move", .flow = "f7"}, kUp{.type = "path", .dry = false};
const Said kLossy{.type = "path", .alert = true, .evidence = {{"probes", "100"}}};
const Said kLossOver{.type = "path", .evidence = {{"probes", "100"}}};

void Say(DryMoves& decided, const Said& said, double before_s) {
  pb::Event event;
  event.set_type(said.type);
  event.set_dry(said.dry);
  event.set_flow(said.flow);
  event.set_peer("h9");
  event.set_slot(said.slot);
  event.set_severity(said.alert ? pb::SEVERITY_ALERT : pb::SEVERITY_NOTICE);
  const auto add = [&](const char* name, const char* value) {
    pb::Evidence& evidence = *event.add_evidence();
    evidence.set_name(name);
    evidence.set_value(value);
  };
  add("pair", said.pair);
  for (const auto& [name, value] : said.evidence) add(name, value);
  if (auto word = DryMoves::Read(event, kThenNs - static_cast<int64_t>(before_s * kSecondNs)))
    decided.Take(*std::move(word));
}

// Of eight GPUs, in seconds of each.
double AvoidableS(const pb::FleetCostReply& reply) { return reply.costs(0).avoidable_gpu_hours() * 3600 / 8; }

TEST_F(CostTest, WhatAgentsWouldHaveMovedWasAvoidableFromThenOn) {
  OnPath(Tell("h1", 1, 11, true));
  EXPECT_EQ(AvoidableS(Cost()), 0) << "nobody decided anything";
  Say(decided_["h2"], kDead, 8);
  Said other = kDead;
  other.flow = "f8";
  Say(decided_["h1"], other, 8);
  EXPECT_EQ(AvoidableS(Cost()), 0) << "another host's, or another flow";
  Say(decided_["h1"], kDead, 8);
  EXPECT_NEAR(AvoidableS(Cost()), 8, 1e-6);
  EXPECT_DOUBLE_EQ(Cost().costs(0).lost_s(), 10);
}

TEST_F(CostTest, NoMoreIsAvoidableThanWasLost) {
  OnPath(Tell("h1", 1, 11, true));
  Say(decided_["h1"], kDead, 20);
  EXPECT_DOUBLE_EQ(Cost().costs(0).avoidable_gpu_hours(), Cost().costs(0).gpu_hours());
}

TEST_F(CostTest, ADecisionOfAnyRanksAgentCounts) {
  OnPath(Tell("h1", 1, 11, true));
  OnPath(Tell("h2", 1, 8, true));
  Say(decided_["h2"], kDead, 9);  // 2 s after it began
  EXPECT_DOUBLE_EQ(Cost().costs(0).lost_s(), 10);
  EXPECT_NEAR(AvoidableS(Cost()), 6, 1e-6);
  Tell("h3", 1, 21, false);
  EXPECT_EQ(Cost().costs(0).where(), "not the network");
  EXPECT_EQ(AvoidableS(Cost()), 0) << "rank 3's process would have taken as long";
}

TEST_F(CostTest, ADecisionEndsWithItsReason) {
  OnPath(Tell("h1", 1, 11, true));
  Say(decided_["h1"], kDead, 60);
  EXPECT_EQ(AvoidableS(Cost()), 0) << "queue pairs gave up long ago";
  Say(decided_["h1"], kDead, 9);
  Said other = kUp;
  other.pair = "10.0.0.2 > 10.0.1.2";
  Say(decided_["h1"], other, 8);
  other = kUp;
  other.slot = 3;
  Say(decided_["h1"], other, 8);
  EXPECT_NEAR(AvoidableS(Cost()), 9, 1e-6) << "the same path of another pair, or another path, lives again";
  Say(decided_["h1"], kUp, 5);
  EXPECT_NEAR(AvoidableS(Cost()), 4, 1e-6) << "the path lived again, and it stood for something else";
  Say(decided_["h1"], kDead, 3);
  Said moved = kDead;
  moved.dry = false;
  Say(decided_["h1"], moved, 2);
  EXPECT_NEAR(AvoidableS(Cost()), 5, 1e-6) << "by then the mode allowed it";
}

TEST_F(CostTest, ALossyPathIsAvoidableUntilItIsGood) {
  OnPath(Tell("h1", 1, 11, true));
  Said other = kLossy;
  other.slot = 3;
  Say(decided_["h1"], other, 600);
  other = kLossy;
  other.pair = "10.0.0.2 > 10.0.1.2";
  Say(decided_["h1"], other, 600);
  EXPECT_EQ(AvoidableS(Cost()), 0) << "another path";
  Say(decided_["h1"], kLossy, 600);
  Say(decided_["h1"], kUp, 500);
  EXPECT_NEAR(AvoidableS(Cost()), 10, 1e-6) << "that it was silent for a moment says nothing of its losses";
  Say(decided_["h1"], kLossOver, 5);
  EXPECT_NEAR(AvoidableS(Cost()), 6, 1e-6);
}

TEST_F(CostTest, ASharedLinkSavesAsTheRuleExpects) {
  OnPath(Tell("h1", 1, 11, true));
  Said uneven{.type = "decision", .flow = "f7"};
  for (const char* wrong : {"", "nan", "-3", "1"}) {
    uneven.evidence = {{"gain", wrong}};
    Say(decided_["h1"], uneven, 6);
  }
  EXPECT_EQ(AvoidableS(Cost()), 0) << "no gain is said";
  uneven.evidence = {{"gain", "1.50"}};
  Say(decided_["h1"], uneven, 6);
  EXPECT_NEAR(AvoidableS(Cost()), 2, 1e-6) << "a third of six seconds";
}

TEST_F(CostTest, WhatIsSaidAgainStandsOnAndTakesNoRoom) {
  OnPath(Tell("h1", 1, 1801, true), 1801);
  Said uneven{.type = "decision", .flow = "f7", .evidence = {{"gain", "2.00"}}};
  for (int before_s = 30'000; before_s > 0; before_s -= 10) Say(decided_["h1"], uneven, before_s);
  EXPECT_TRUE(decided_["h1"].whole());
  EXPECT_NEAR(AvoidableS(Cost()), 900.5, 1) << "half of half an hour";
}

TEST_F(CostTest, DecisionsAreBounded) {
  DryMoves& decided = decided_["h1"];
  for (int i = 0; i < 30'000; ++i) {
    const std::string flow = std::to_string(i);
    Said said = kDead;
    said.flow = flow.c_str();
    said.slot = i;
    Say(decided, said, 100);
    said.flow = "0";
    said.slot = 0;
    Say(decided, said, 99.0 - i * 1e-3);
    said = kUp;
    said.slot = i % 2 == 0 ? 0 : i;
    Say(decided, said, 99.0 - i * 1e-3);
  }
  EXPECT_FALSE(decided.whole());
  EXPECT_GT(decided.SavedNs({.id = "0"}, kThenNs - 99 * kSecondNs, kThenNs), 0) << "the newest count";
  EXPECT_EQ(decided.SavedNs({.id = "29999"}, 0, kThenNs), 0) << "there was no room";
}

TEST_F(CostTest, NumbersThatAHostMakesUpAreCut) {
  Tell("h1", 1, 1e290, false).set_ranks(-4);
  EXPECT_DOUBLE_EQ(Cost().costs(0).lost_s(), 86'400 - 1);
  pb::Collective& c = Tell("h1", 2, 11, false);
  c.set_usual_ns(-1e300);
  c.set_duration_ns(std::nan(""));
  EXPECT_EQ(Cost().costs(0).collectives(), 1u);
  for (uint64_t seq = 3; seq < 1000; ++seq) {
    pb::Collective& way = Tell("h1", seq, 11, true);
    way.mutable_peers(0)->mutable_qps(0)->set_hops(0, std::string(10'000, 'x') + std::to_string(seq));
    way.mutable_peers(0)->mutable_qps(0)->set_peer("h" + std::to_string(seq));
  }
  const pb::FleetCostReply reply = Cost();
  EXPECT_EQ(reply.costs_size(), 201);
  EXPECT_EQ(reply.costs(200).where(), "all others");
  EXPECT_LT(reply.ByteSizeLong(), 100'000u);
}

}  // namespace
}  // namespace cw::fleet
