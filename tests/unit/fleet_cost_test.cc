// SPDX-License-Identifier: Apache-2.0
// What slow and standing collectives cost.
#include "userspace/fleet/jobs/cost.h"

#include <gtest/gtest.h>

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
    told_.push_back({host, &c, kThenNs});
    return c;
  }
  pb::FleetCostReply Cost() { return CostOf(told_, findings_, topology_); }

  std::deque<pb::Collective> messages_;
  std::vector<ToldCollective> told_;
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
  findings_[0].end_ns = kThenNs - 12 * kSecondNs;  // before it began
  EXPECT_EQ(Cost().costs(0).finding(), "");
  findings_[0].end_ns = 0;
  findings_[0].start_ns = kThenNs + 120 * kSecondNs;  // long after it
  EXPECT_EQ(Cost().costs(0).finding(), "");
}

TEST_F(CostTest, WhatWasNotSlowerThanUsualCostsNothing) {
  Tell("h1", 1, 0.5, false);
  EXPECT_EQ(Cost().costs(0).gpu_hours(), 0);
  Tell("h1", 2, 11, false).set_usual_ns(0);  // it stands
  EXPECT_DOUBLE_EQ(Cost().costs(0).lost_s(), 11);
}

}  // namespace
}  // namespace cw::fleet
