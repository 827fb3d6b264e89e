// SPDX-License-Identifier: Apache-2.0
// Answers on jobs, now and then, from hosts' batches through the production ingest and store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_failing_store.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/query/jobs_query.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

std::string NetBytes(uint32_t host_order) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(host_order >> shift);
  return bytes;
}

const std::vector<Addr> kWay = {Addr::FromV4(0x0a010001), Addr::FromV4(0x0a020001)};

void Define(uint32_t host, pb::Batch& batch) {
  pb::HopList& hops = *batch.mutable_definitions()->add_hop_lists();
  hops.set_id(HopsId(kWay));
  hops.add_address(NetBytes(0x0a010001));
  hops.add_address(NetBytes(0x0a020001));
  pb::PathName& path = *batch.mutable_definitions()->add_paths();
  path.set_path(1);
  path.set_local(NetBytes(0x0a000001 + host));
  path.set_remote(NetBytes(0x0a000002 - host));
  path.set_udp_port(50'000);
  path.set_hops(hops.id());
  pb::FlowName& flow = *batch.mutable_definitions()->add_flows();
  flow.set_flow(1);
  flow.set_local(path.local());
  flow.set_remote(path.remote());
  flow.set_peer(absl::StrCat("h", 1 - host));
  flow.set_qpn(70 + host);
  flow.set_pid(100 + host);
}

void FillRank(int host, pb::Job& job) {
  job.set_id("aa");
  job.set_label("train");
  job.set_pid(100 + static_cast<uint32_t>(host));
  job.set_rank(host);
  job.set_ranks(2);
  job.set_slowest_peer(-1);
}

void FillStanding(int host, pb::Collective& c) {
  c.set_job_id("aa");
  c.set_pid(100 + static_cast<uint32_t>(host));
  c.set_rank(host);
  c.set_ranks(2);
  c.set_function("AllReduce");
  c.set_seq(9);
  c.set_peer(-1);
  c.set_state(pb::Collective::STATE_STALLED);
  c.set_duration_ns(12e9);
  pb::CollectivePeer& op = *c.add_peers();
  op.set_rank(1 - host);
  op.set_state("RecvWait");
}

class JobsQueryTest : public ::testing::Test {
 protected:
  JobsQueryTest() {
    for (const int host : {0, 1}) {
      const std::string name = absl::StrCat("h", host);
      pb::Hello hello;
      hello.set_host(name);
      hello.set_run(7);
      EXPECT_TRUE(ingest_.Connect(hello, {.names = {name}}, kStart).ok());
    }
  }

  // Ten seconds of a rank's host that end then, with one flow to the other host.
  void Tell(int host, absl::Time end, uint64_t bytes, bool stands = false) {
    pb::Batch batch;
    batch.set_host(absl::StrCat("h", host));
    batch.set_run(7);
    batch.set_sequence(++sequence_[host]);
    batch.set_from_ns(absl::ToUnixNanos(end - absl::Seconds(10)));
    batch.set_to_ns(absl::ToUnixNanos(end));
    batch.set_usual_sent(100);
    if (sequence_[host] == 1) Define(static_cast<uint32_t>(host), batch);
    batch.add_paths()->set_path(1);
    if (bytes > 0) {
      pb::FlowRecord& flow = *batch.add_flows();
      flow.set_flow(1);
      flow.set_path(1);
      flow.set_bytes(bytes);
    }
    FillRank(host, *batch.add_jobs());
    if (stands) FillStanding(host, *batch.add_collectives());
    EXPECT_FALSE(ingest_.Enqueue(batch.host(), batch, end).has_value());
    ingest_.Flush(end);
  }

  JobsQuery Query() {
    return JobsQuery(*store_, FleetFile{}, [this](const std::function<void(const LiveHost&)>& look) {
      for (const LiveHost* host : ingest_.Hosts()) look(*host);
    });
  }

  std::unique_ptr<Store> store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  Ingest ingest_{*store_, "one", {}};
  std::map<int, uint64_t> sequence_;
};

pb::FleetJobsRequest AskFor(const std::string& job, absl::Time at = absl::UnixEpoch()) {
  pb::FleetJobsRequest request;
  request.set_job(job);
  request.set_at_ns(absl::ToUnixNanos(at));
  return request;
}

TEST_F(JobsQueryTest, AJobIsOneOverItsHostsNowAndThen) {
  for (int i = 1; i <= 12; ++i) {
    for (const int host : {0, 1})
      Tell(host, kStart + i * absl::Seconds(10), i <= 6 ? 1'250'000'000 : 125'000'000, host == 1 && i == 12);
  }
  JobsQuery query = Query();
  const auto now = query.Jobs(AskFor("train"));
  ASSERT_TRUE(now.ok()) << now.status();
  ASSERT_THAT(now->jobs(), SizeIs(1));
  EXPECT_EQ(now->jobs(0).ranks_known(), 2u);
  EXPECT_NEAR(now->jobs(0).bytes_per_s(), 2 * 12.5e6, 1);
  EXPECT_THAT(now->jobs(0).pairs(), SizeIs(2));
  EXPECT_THAT(now->jobs(0).links(), SizeIs(5)) << "one between the switches, and each NIC's two";
  EXPECT_THAT(now->jobs(0).held_up(), ElementsAre(HasSubstr("rank 1 (h1) waits for rank 0 (h0)")));
  EXPECT_EQ(now->coverage().hosts(), 2u);
  EXPECT_THAT(now->coverage().missing(), IsEmpty());
  EXPECT_THAT(query.Jobs(AskFor("aa"))->jobs(), SizeIs(1)) << "by its communicator";
  EXPECT_EQ(query.Jobs(AskFor("other")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(query.Jobs(AskFor(""))->jobs(0).rank_list(), IsEmpty());

  const auto then = query.Jobs(AskFor("train", kStart + absl::Seconds(55)));
  ASSERT_TRUE(then.ok()) << then.status();
  EXPECT_NEAR(then->jobs(0).bytes_per_s(), 2 * 125e6, 1);
  EXPECT_THAT(then->jobs(0).held_up(), IsEmpty());
  EXPECT_THAT(then->coverage().missing(), IsEmpty());
  const auto before = query.Jobs(AskFor("", kStart - absl::Hours(1)));
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(before->jobs(), IsEmpty());
  EXPECT_THAT(before->coverage().missing(), SizeIs(2)) << "partial, and said so";

  pb::FleetDiffJobsRequest runs;
  runs.mutable_first()->set_job("train");
  runs.mutable_first()->set_at_ns(absl::ToUnixNanos(kStart + absl::Seconds(60)));
  runs.mutable_second()->set_job("train");
  const auto diff = query.Diff(runs, absl::ToUnixNanos(kStart + absl::Seconds(120)));
  ASSERT_TRUE(diff.ok()) << diff.status();
  EXPECT_EQ(diff->summary(), "first run 2 Gbit/s, second 0.2 Gbit/s");
  EXPECT_THAT(diff->changes(), SizeIs(2));
  runs.mutable_second()->set_job("other");
  EXPECT_EQ(query.Diff(runs, absl::ToUnixNanos(kStart)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(query.Diff({}, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobsQueryTest, AHostWhoseBlockIsDamagedIsMissingAlone) {
  for (const int host : {0, 1}) Tell(host, kStart + absl::Seconds(10), 1'250'000'000);
  FailingStore failing(*store_);
  failing.damaged = "h1";
  JobsQuery query(failing, FleetFile{}, [](const std::function<void(const LiveHost&)>&) {});
  const auto then = query.Jobs(AskFor("train", kStart + absl::Seconds(10)));
  ASSERT_TRUE(then.ok()) << then.status();
  ASSERT_THAT(then->jobs(), SizeIs(1));
  EXPECT_EQ(then->jobs(0).ranks_known(), 1u);
  EXPECT_THAT(then->coverage().missing(), ElementsAre("h1: a damaged block"));
}

TEST_F(JobsQueryTest, AFindingOnItsWayIsNamed) {
  Tell(0, kStart, 1000);
  Finding finding{.id = 0xab, .cause = Cause::kLinkGrey, .scope = "link x", .start_ns = 1};
  finding.links = {{kWay[0], kWay[1]}};
  ASSERT_TRUE(store_->PutFindings({{finding.id, 1, 0, MessageOf(finding).SerializeAsString()}}).ok());
  EXPECT_THAT(Query().Jobs(AskFor("train"))->jobs(0).findings(), ElementsAre("00000000000000ab"));
}

TEST_F(JobsQueryTest, WhatAHostDoesEndsWithItsTraffic) {
  Tell(0, kStart, 1000, true);
  JobsQuery query = Query();
  pb::FleetWorkRequest request;
  request.set_host("h0");
  request.set_flows(true);
  request.set_jobs(true);
  request.set_collectives(true);
  auto work = query.Work(request);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_THAT(work->flows(), SizeIs(1));
  EXPECT_EQ(work->flows(0).bytes_per_s(), 100);
  EXPECT_THAT(work->flows(0).hops(), ElementsAre("10.1.0.1", "10.2.0.1"));
  EXPECT_EQ(work->flows(0).time_ns() - work->flows(0).from_ns(), 10'000'000'000);
  EXPECT_THAT(work->jobs(), SizeIs(1));
  EXPECT_THAT(work->collectives(), SizeIs(1));
  request.set_job("none");
  EXPECT_THAT(query.Work(request)->jobs(), IsEmpty());
  request.clear_job();
  for (int i = 1; i <= 4; ++i) Tell(0, kStart + i * absl::Seconds(10), 0);
  work = query.Work(request);
  EXPECT_THAT(work->flows(), IsEmpty());
  EXPECT_THAT(work->jobs(), SizeIs(1));
  request.set_at_ns(absl::ToUnixNanos(kStart + absl::Seconds(5)));
  EXPECT_THAT(query.Work(request)->flows(), SizeIs(1)) << "as it was";
  request.set_host("h9");
  EXPECT_EQ(query.Work(request).status().code(), absl::StatusCode::kNotFound);

  ingest_.Disconnect("h0", 7);
  request.set_host("h0");
  request.set_at_ns(0);
  EXPECT_THAT(query.Work(request)->coverage().missing(), ElementsAre(HasSubstr("h0: not connected")));
}

TEST_F(JobsQueryTest, WhatItCostIsOfTheRangeThatIsAskedFor) {
  for (int i = 1; i <= 12; ++i) {
    for (const int host : {0, 1}) Tell(host, kStart + i * absl::Seconds(10), 1'000'000, i == 12);
  }
  JobsQuery query = Query();
  const int64_t now_ns = absl::ToUnixNanos(kStart + absl::Seconds(130));
  pb::FleetCostRequest request;
  absl::StatusOr<pb::FleetCostReply> cost = query.Cost(request, now_ns);
  ASSERT_TRUE(cost.ok()) << cost.status();
  ASSERT_EQ(cost->costs_size(), 1) << "both ranks tell of one collective";
  EXPECT_EQ(cost->costs(0).where(), "not the network");
  EXPECT_DOUBLE_EQ(cost->costs(0).lost_s(), 12);
  EXPECT_DOUBLE_EQ(cost->costs(0).gpu_hours(), 24.0 / 3600);
  EXPECT_EQ(cost->to_ns(), now_ns);
  request.set_job("other");
  EXPECT_EQ(query.Cost(request, now_ns)->costs_size(), 0);
  request.set_job("");
  request.set_to_ns(absl::ToUnixNanos(kStart + absl::Seconds(60)));
  EXPECT_EQ(query.Cost(request, now_ns)->costs_size(), 0);
  request.set_from_ns(request.to_ns());
  EXPECT_TRUE(absl::IsInvalidArgument(query.Cost(request, now_ns).status()));
  request.set_from_ns(INT64_MIN);
  request.set_to_ns(INT64_MAX);
  EXPECT_TRUE(absl::IsInvalidArgument(query.Cost(request, now_ns).status()));
}

TEST_F(JobsQueryTest, WhetherAHostFitsTakesAHostThatIsNotInTheJob) {
  for (const int host : {0, 1}) Tell(host, kStart + absl::Seconds(10), 1'000'000);
  pb::Hello hello;
  hello.set_host("h2");
  hello.set_run(7);
  ASSERT_TRUE(ingest_.Connect(hello, {.names = {"h2"}}, kStart).ok());
  JobsQuery query = Query();
  const auto ask = [&](const std::string& host, const std::string& job, const std::string& instead_of = "") {
    pb::FleetFitRequest request;
    request.set_host(host);
    request.set_job(job);
    request.set_instead_of(instead_of);
    return query.Fit(request);
  };
  EXPECT_TRUE(absl::IsNotFound(ask("h2", "other").status()));
  EXPECT_TRUE(absl::IsNotFound(ask("h9", "train").status()));
  EXPECT_TRUE(absl::IsNotFound(ask("h2", "train", "h9").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ask("h0", "train", "h1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ask("h1", "train").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ask("", "train").status()));
  const auto fit = ask("h2", "train", "h1");
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->answer(), "unknown") << "nothing was measured between it and h0";
  EXPECT_EQ(fit->checks(0).answer(), "yes") << fit->checks(0).text();
  EXPECT_EQ(fit->coverage().hosts(), 3u);
  ingest_.Disconnect("h1", 7);
  EXPECT_TRUE(ask("h2", "train", "h1").ok()) << "it broke: that is why another one is wanted";
}

}  // namespace
}  // namespace cw::fleet
