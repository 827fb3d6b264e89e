// SPDX-License-Identifier: Apache-2.0
// Jobs joined over hosts, what holds them up, what a finding affects, and two runs compared: made-up hosts, no engine.
#include "userspace/fleet/jobs/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/jobs/diff.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kToldNs = 1'800'000'000'000'000'000;
constexpr uint64_t kGbit10s = 1'250'000'000;  // bytes of 1 Gbit/s in ten seconds

Addr Nic(uint32_t host) { return Addr::FromV4(0x0a000000 + host); }

// Hosts by number; what they tell stays as long as this.
class Cluster {
 public:
  Cluster() = default;
  Cluster(Cluster&&) = default;

  HostWork& Host(uint32_t number) {
    const auto [at, fresh] = places_.try_emplace(number, work_.size());
    if (fresh)
      work_.push_back({.host = absl::StrCat("h", number), .flows_s = 10, .flows = {}, .ranks = {}, .collectives = {}});
    return work_[at->second];
  }
  pb::Job& Rank(uint32_t host, const std::string& id, int rank, int ranks, uint32_t pid,
                const std::string& label = "") {
    pb::Job& job = jobs_.emplace_back();
    job.set_id(id);
    job.set_label(label);
    job.set_pid(pid);
    job.set_rank(rank);
    job.set_ranks(ranks);
    job.set_slowest_peer(-1);
    Host(host).ranks.push_back({&job, 5});
    return job;
  }
  FlowSample& Flow(uint32_t from, uint32_t to, uint32_t pid, uint64_t bytes, const std::vector<Addr>& hops = {}) {
    FlowSample& flow = flows_.emplace_back();
    flow.name = {.local = Nic(from), .remote = Nic(to), .qpn = static_cast<uint32_t>(flows_.size()), .pid = pid};
    flow.name.peer = absl::StrCat("h", to);
    flow.bytes = bytes;
    const std::vector<Addr>* way = hops.empty() ? nullptr : &hops_.emplace_back(hops);
    Host(from).flows.push_back({&flow, way});
    return flow;
  }
  pb::Collective& Stands(uint32_t host, const std::string& id, int rank, int ranks, uint64_t seq = 42) {
    pb::Collective& c = collectives_.emplace_back();
    c.set_job_id(id);
    c.set_rank(rank);
    c.set_ranks(ranks);
    c.set_pid(100 + static_cast<uint32_t>(rank));
    c.set_function("AllReduce");
    c.set_seq(seq);
    c.set_peer(-1);
    c.set_state(pb::Collective::STATE_STALLED);
    c.set_enqueued_ago_s(31);
    Host(host).collectives.push_back({&c, kToldNs});
    return c;
  }
  absl::Span<const HostWork> hosts() const { return work_; }
  std::vector<JoinedJob> Join() const { return JoinJobs(work_); }

 private:
  std::map<uint32_t, size_t> places_;
  std::vector<HostWork> work_;
  std::deque<pb::Job> jobs_;
  std::deque<FlowSample> flows_;
  std::deque<std::vector<Addr>> hops_;
  std::deque<pb::Collective> collectives_;
};

pb::CollectivePeer& Waits(pb::Collective& c, int peer, bool send, const std::string& state, double ns = 30e9) {
  pb::CollectivePeer& op = *c.add_peers();
  op.set_rank(peer);
  op.set_send(send);
  op.set_state(state);
  op.set_state_ns(ns);
  return op;
}

TEST(FleetJobs, CommunicatorsOfOneTrainingAreOneJobOverItsHosts) {
  Cluster cluster;
  for (uint32_t h = 0; h < 4; ++h) {
    cluster.Rank(h, "dp", static_cast<int>(h), 4, 100, "train");
    cluster.Rank(h, absl::StrCat("tp", h / 2), static_cast<int>(h % 2), 2, 100);  // without the label
    cluster.Rank(h, "other", static_cast<int>(h), 4, 200);
    cluster.Flow(h, (h + 1) % 4, 100, kGbit10s);
  }
  cluster.Flow(0, 1, 300, 5);                         // of a process that tells of no communicator
  cluster.Flow(3, 0, 400, 5).name.label = "train";    // by its label
  cluster.Flow(3, 0, 500, 5).name.label = "storage";  // a job without ranks
  const std::vector<JoinedJob> jobs = cluster.Join();
  ASSERT_THAT(jobs, SizeIs(3));
  EXPECT_EQ(jobs[0].name, "other");
  EXPECT_EQ(jobs[1].name, "storage");
  EXPECT_EQ(jobs[2].name, "train");
  EXPECT_THAT(jobs[2].ids, ElementsAre("dp", "tp0", "tp1"));
  const pb::FleetJob job = DescribeJob(jobs[2], cluster.hosts(), true);
  EXPECT_EQ(job.ranks(), 4u);
  EXPECT_EQ(job.ranks_known(), 4u);
  EXPECT_EQ(job.flows(), 5u);
  EXPECT_NEAR(job.bytes_per_s(), 4 * 1.25e8, 10);
  EXPECT_THAT(job.hosts(), ElementsAre("h0", "h1", "h2", "h3"));
  ASSERT_THAT(job.rank_list(), SizeIs(8));
  EXPECT_EQ(job.rank_list(2).host(), "h2");
  EXPECT_EQ(job.rank_list(2).time_ns(), 5);
  EXPECT_FALSE(job.ended());
  EXPECT_THAT(DescribeJob(jobs[2], cluster.hosts(), false).rank_list(), IsEmpty());
}

TEST(FleetJobs, ACommunicatorsNameJoinsNothing) {
  Cluster cluster;
  cluster.Rank(0, "aa", 0, 2, 100, "dp").set_name("dp");
  cluster.Rank(1, "bb", 0, 2, 100, "dp").set_name("dp");
  EXPECT_THAT(cluster.Join(), SizeIs(2)) << "two jobs of two people that call a communicator the same";
}

TEST(FleetJobs, PairsOfHostsAndLinksHaveWhatTheirFlowsHave) {
  Cluster cluster;
  const Addr leaf = Addr::FromV4(1), spine = Addr::FromV4(2), other = Addr::FromV4(3);
  cluster.Rank(0, "dp", 0, 2, 100, "train").set_bus_bytes_per_s(9e9);
  cluster.Rank(1, "dp", 1, 2, 100, "train").set_ended(true);
  FlowSample& first = cluster.Flow(0, 1, 100, kGbit10s, {leaf, spine});
  first.retransmits = 3;
  first.delay.Add(5000, 10);
  cluster.Flow(0, 1, 100, 2 * kGbit10s, {leaf, Addr{}, other});
  cluster.Flow(1, 0, 100, 4 * kGbit10s);
  const pb::FleetJob job = DescribeJob(cluster.Join()[0], cluster.hosts(), true);
  ASSERT_THAT(job.pairs(), SizeIs(2));
  EXPECT_EQ(job.pairs(0).from(), "h1");
  EXPECT_EQ(job.pairs(1).flows(), 2u);
  EXPECT_NEAR(job.pairs(1).bytes_per_s(), 3.75e8, 10);
  EXPECT_EQ(job.pairs(1).retransmits(), 3u);
  EXPECT_NEAR(static_cast<double>(job.pairs(1).delay_p50_ns()), 5000, 200);
  EXPECT_EQ(job.bus_bytes_per_s(), 9e9);
  std::map<std::string, uint32_t> flows;
  for (const pb::FleetJobLink& link : job.links()) flows[link.link().from() + ">" + link.link().to()] = link.flows();
  EXPECT_EQ(flows,
            (std::map<std::string, uint32_t>{
                {"10.0.0.0>0.0.0.1", 2}, {"0.0.0.1>0.0.0.2", 1}, {"0.0.0.2>10.0.0.1", 1}, {"0.0.0.3>10.0.0.1", 1}}))
      << "a hop that is silent has no link";
}

TEST(FleetJobs, AFindingNamesTheJobsThatCrossIt) {
  Cluster cluster;
  const Addr leaf = Addr::FromV4(1), spine = Addr::FromV4(2), spine2 = Addr::FromV4(3);
  cluster.Rank(0, "a", 0, 2, 100, "alpha");
  cluster.Rank(2, "b", 0, 2, 100, "beta");
  cluster.Flow(0, 1, 100, 10, {leaf, spine});
  cluster.Flow(2, 3, 100, 10, {leaf, spine2});
  const std::vector<JoinedJob> jobs = cluster.Join();
  Topology topology;
  topology.switches.push_back({.name = "spine1", .addresses = {spine}});
  const auto crossing = [&](const std::string& scope, std::vector<LinkId> links = {}) {
    Finding finding;
    finding.scope = scope;
    finding.links = std::move(links);
    std::vector<std::string> names;
    for (const JoinedJob& job : jobs) {
      if (Crosses(finding, ReachOf(job, cluster.hosts()), topology)) names.push_back(job.name);
    }
    return names;
  };
  EXPECT_THAT(crossing("link x", {{leaf, spine}}), ElementsAre("alpha"));
  EXPECT_THAT(crossing("link x", {{Addr::FromV4(77), spine2}}), ElementsAre("beta"));
  EXPECT_THAT(crossing("link x", {{Nic(0), leaf}}), ElementsAre("alpha", "beta"));
  EXPECT_THAT(crossing("link x", {{spine, leaf}, {spine, Nic(3)}}), ElementsAre("alpha", "beta"));
  EXPECT_THAT(crossing("switch spine1"), ElementsAre("alpha"));
  EXPECT_THAT(crossing("NIC 10.0.0.3"), ElementsAre("beta"));
  EXPECT_THAT(crossing("host h1"), ElementsAre("alpha"));
  EXPECT_THAT(crossing("host h2"), ElementsAre("beta"));
  EXPECT_THAT(crossing("host h9"), IsEmpty());
}

class HeldUp : public ::testing::Test {
 protected:
  HeldUp() {
    for (uint32_t h = 0; h < 4; ++h) cluster_.Rank(h, "dp", static_cast<int>(h), 4, 100 + h, "train");
  }
  static std::vector<std::string> TextsOf(const std::vector<HeldUpBy>& all) {
    std::vector<std::string> texts;
    for (const HeldUpBy& by : all) texts.push_back(by.text);
    return texts;
  }
  std::string Host() { return WhatHoldsUp(cluster_.Join().at(0), cluster_.hosts(), {}, {}).at(0).host; }
  std::vector<std::string> Told(const std::vector<Finding>& findings = {}) {
    return TextsOf(WhatHoldsUp(cluster_.Join().at(0), cluster_.hosts(), findings, {}));
  }
  Cluster cluster_;
};

TEST_F(HeldUp, NothingWhereNothingStands) { EXPECT_THAT(Told(), IsEmpty()); }

TEST_F(HeldUp, ARankThatSentNothingIsFoundBehindThoseThatWait) {
  Waits(cluster_.Stands(2, "dp", 2, 4), 1, false, "RecvWait");
  Waits(cluster_.Stands(3, "dp", 3, 4), 2, false, "RecvWait");
  Waits(cluster_.Stands(1, "dp", 1, 4), 0, false, "RecvWait");
  const std::vector<std::string> told = Told();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(told[0],
              AllOf(HasSubstr("AllReduce 42 stands for 31 s: rank 1 (h1) waits for rank 0 (h0): "),
                    HasSubstr("has not begun it, so it sent nothing: not the network"), HasSubstr("process 100")));
  EXPECT_EQ(Host(), "h0");
}

TEST_F(HeldUp, AGpuWithoutDataIsNotTheNetwork) {
  Waits(cluster_.Stands(1, "dp", 1, 4), 0, false, "RecvWait");
  Waits(cluster_.Stands(0, "dp", 0, 4), 1, true, "SendGPUWait");
  EXPECT_THAT(Told().at(0), AllOf(HasSubstr("rank 1 (h1) waits for rank 0 (h0)"), HasSubstr("its GPU has no data yet"),
                                  HasSubstr("not the network")));
}

TEST_F(HeldUp, WhatWasSentAndNotTakenIsThePathsAndItsFinding) {
  Waits(cluster_.Stands(1, "dp", 1, 4), 0, false, "RecvWait");
  pb::Collective& sends = cluster_.Stands(0, "dp", 0, 4);
  Waits(sends, 3, false, "RecvWait", 31e9);  // it waits, too, because what it sent did not come round
  pb::CollectiveQp& qp = *Waits(sends, 1, true, "SendWait").add_qps();
  qp.set_flow("0b5c91fe");
  qp.set_open(1);
  qp.set_peer("h1");
  qp.add_hops("0.0.0.1");
  qp.add_hops("0.0.0.2");
  EXPECT_THAT(Told().at(0), AllOf(HasSubstr("rank 0 (h0) sent to rank 1 (h1), which was not taken, by flow 0b5c91fe"),
                                  HasSubstr("no finding is on its path; ask cwctl why 0b5c91fe on h0")));
  Finding grey{.id = 0xab, .cause = Cause::kLinkGrey, .scope = "link 0.0.0.1>0.0.0.2"};
  grey.links = {{Addr::FromV4(1), Addr::FromV4(2)}};
  Finding elsewhere{.id = 0xcd, .cause = Cause::kLinkDead, .scope = "link 0.0.0.1>0.0.0.9"};
  elsewhere.links = {{Addr::FromV4(1), Addr::FromV4(9)}};
  EXPECT_THAT(Told({elsewhere, grey}).at(0),
              HasSubstr("its path crosses link 0.0.0.1>0.0.0.2, which is wrong: link grey "
                        "(finding 00000000000000ab)"));
  EXPECT_THAT(Told({elsewhere}).at(0), HasSubstr("no finding is on its path"));
  EXPECT_EQ(Host(), "");
}

TEST_F(HeldUp, WhoIsNotHeardIsNotBlamed) {
  Waits(cluster_.Stands(1, "dp", 1, 4), 0, false, "RecvWait");
  cluster_.Host(0).speaks = false;
  EXPECT_THAT(Told().at(0), AllOf(HasSubstr("h0 is not connected"), Not(HasSubstr("not the network"))));
  EXPECT_EQ(Host(), "");
  Waits(cluster_.Stands(0, "dp", 0, 4), 1, true, "SendGPUWait");  // its last word
  EXPECT_EQ(Host(), "") << "nobody knows what it does now";
  Cluster half;
  half.Rank(1, "dp", 1, 4, 101, "train");
  Waits(half.Stands(1, "dp", 1, 4), 0, false, "RecvWait");
  EXPECT_THAT(WhatHoldsUp(half.Join().at(0), half.hosts(), {}, {}).at(0).text, HasSubstr("no host tells of rank 0"));
}

TEST_F(HeldUp, ARingOfWaitsEndsAndIsSaid) {
  for (uint32_t h = 0; h < 4; ++h)
    Waits(cluster_.Stands(h, "dp", static_cast<int>(h), 4), static_cast<int>(h + 3) % 4, false, "RecvWait");
  EXPECT_THAT(Told().at(0), HasSubstr("ranks wait for each other in a ring"));
}

// NCCL numbers each function by itself.
TEST_F(HeldUp, TheOldestIsTheOneThatBeganFirst) {
  cluster_.Stands(1, "dp", 1, 4, 900).set_function("ReduceScatter");
  cluster_.Stands(1, "dp", 1, 4, 7).set_enqueued_ago_s(12);
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("ReduceScatter 900 stands")));
}

TEST_F(HeldUp, TheNewestSlowOneOfACommunicatorIsTold) {
  for (const uint64_t seq : {3, 4, 5}) {
    pb::Collective& c = cluster_.Stands(0, "dp", 0, 4, seq);
    c.set_state(pb::Collective::STATE_DONE);
    c.set_slow(true);
    c.set_held("the network");
    // The one that was told last says of an older moment that it is nearer.
    c.set_enqueued_ago_s(seq == 3 ? 1 : 2);
    cluster_.Host(0).collectives.back().time_ns += static_cast<int64_t>(seq) * 60'000'000'000;
  }
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("AllReduce 5 was slow")));
}

TEST_F(HeldUp, TheOldestStandsAndSlowOnesAreTheRanksOwnWord) {
  Waits(cluster_.Stands(1, "dp", 1, 4, 43), 0, false, "RecvWait");
  Waits(cluster_.Stands(1, "dp", 1, 4, 42), 0, false, "RecvWait");
  cluster_.Host(1).collectives[1].time_ns -= 1'000'000'000;
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("AllReduce 42 stands")));
  Cluster slow;
  for (uint32_t h = 0; h < 2; ++h) {
    slow.Rank(h, "dp", static_cast<int>(h), 2, 100, "train");
    pb::Collective& c = slow.Stands(h, "dp", static_cast<int>(h), 2);
    c.set_state(pb::Collective::STATE_DONE);
    c.set_slow(true);
    c.set_network(h == 0);
    c.set_duration_ns(5e6);
    c.set_held(h == 0 ? "the network to rank 1" : "rank 0 sent nothing");
  }
  EXPECT_THAT(TextsOf(WhatHoldsUp(slow.Join().at(0), slow.hosts(), {}, {})),
              ElementsAre("AllReduce 42 was slow (5.0 ms): rank 0 (h0): the network to rank 1"));
}

// Eight hosts, each sends to the next one by one of two spines.
Cluster RunOf(uint64_t slow_bytes, uint64_t slow_delay_ns, uint32_t slow_spine) {
  Cluster cluster;
  for (uint32_t h = 0; h < 8; ++h) {
    cluster.Rank(h, "dp", static_cast<int>(h), 8, 100, "train");
    const bool slow = h == 5;
    FlowSample& flow = cluster.Flow(h, (h + 1) % 8, 100, slow ? slow_bytes : 45 * kGbit10s,
                                    {Addr::FromV4(1), Addr::FromV4(slow ? slow_spine : 10 + h % 2)});
    flow.delay.Add(slow ? slow_delay_ns : 4000, 100);
  }
  return cluster;
}

pb::FleetDiffJobsReply Diff(const Cluster& a, const Cluster& b) {
  const std::vector<JoinedJob> first = a.Join(), second = b.Join();
  return DiffJobs({&first.at(0), a.hosts()}, {&second.at(0), b.hosts()});
}

TEST(FleetJobDiff, OneSlowFlowIsSaidWithItsWay) {
  const Cluster a = RunOf(45 * kGbit10s, 4000, 11), b = RunOf(5 * kGbit10s, 94'000, 12);
  const pb::FleetDiffJobsReply reply = Diff(a, b);
  EXPECT_THAT(reply.summary(),
              AllOf(HasSubstr("first run 360 Gbit/s, second 320 Gbit/s"), HasSubstr("in the second 1 flow at 94"),
                    HasSubstr("others at 4"), HasSubstr("the slowest to h6 by 0.0.0.1 0.0.0.12"),
                    HasSubstr("alone over 0.0.0.12")));
  ASSERT_THAT(reply.changes(), SizeIs(3));
  EXPECT_EQ(reply.changes(0).what(), "delay");
  EXPECT_EQ(reply.changes(0).scope(), "h5 > h6");
  EXPECT_NEAR(reply.changes(0).second(), 94'000, 3000);
  EXPECT_EQ(reply.changes(1).what(), "bandwidth");
  EXPECT_THAT(reply.changes(1).text(), HasSubstr("45 Gbit/s, then 5 Gbit/s"));
  EXPECT_EQ(reply.changes(2).what(), "path");
  EXPECT_THAT(reply.changes(2).text(), HasSubstr("no more by 0.0.0.1 0.0.0.11, but by 0.0.0.1 0.0.0.12"));
  EXPECT_THAT(Diff(b, a).summary(), HasSubstr("in the first 1 flow at 94")) << "the other way round";
}

TEST(FleetJobDiff, TwoAlikeHaveNoChange) {
  const Cluster a = RunOf(45 * kGbit10s, 4000, 11), b = RunOf(44 * kGbit10s, 4500, 11);
  const pb::FleetDiffJobsReply reply = Diff(a, b);
  EXPECT_THAT(reply.changes(), IsEmpty());
  EXPECT_THAT(reply.summary(), Not(HasSubstr("others at")));
}

TEST(FleetJobDiff, OtherHostsAndRetransmitsAreSaid) {
  const Cluster a = RunOf(45 * kGbit10s, 4000, 11);
  Cluster b = RunOf(45 * kGbit10s, 4000, 11);
  FlowSample& extra = b.Flow(0, 9, 100, 10 * kGbit10s);
  extra.retransmits = 500;
  const pb::FleetDiffJobsReply reply = Diff(a, b);
  ASSERT_THAT(reply.changes(), SizeIs(3));
  EXPECT_EQ(reply.changes(0).text(), "only in the second: h9");
  EXPECT_EQ(reply.changes(1).what(), "retransmits");
  EXPECT_THAT(reply.changes(1).text(), HasSubstr("0.0 packets/s sent again, then 50.0"));
  EXPECT_EQ(reply.changes(2).what(), "bandwidth");
  EXPECT_EQ(reply.first().hosts_size(), 8);
  EXPECT_EQ(reply.second().hosts_size(), 9);
}

}  // namespace
}  // namespace cw::fleet
