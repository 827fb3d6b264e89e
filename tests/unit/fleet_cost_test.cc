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
    for (const auto& [host, c] : told_) EXPECT_TRUE(book.Add(host, *c, kThenNs - 10 * kSecondNs, kThenNs));
    return book.Sum();
  }

  std::deque<pb::Collective> messages_;
  std::vector<std::pair<std::string, const pb::Collective*>> told_;
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
  for (int64_t at : {0, 100}) EXPECT_TRUE(book.Add("h1", messages_[0], kThenNs, kThenNs + at * kSecondNs));
  EXPECT_EQ(book.Sum().costs(0).collectives(), 1u);
  EXPECT_TRUE(book.Add("h1", messages_[0], kThenNs + 100 * kSecondNs, kThenNs + 110 * kSecondNs));
  EXPECT_EQ(book.Sum().costs(0).collectives(), 2u);
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
