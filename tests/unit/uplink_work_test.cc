// SPDX-License-Identifier: Apache-2.0
// What a host tells of its flows, jobs and collectives: differences, names once, nothing where nothing happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "userspace/agent/uplink_work.h"
#include "userspace/uplink/work_batch.h"

namespace cw::uplink {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

FlowSeen Flow(uint32_t number, uint64_t bytes) {
  FlowSeen flow{.key = {.src = Addr::FromV4(0x0a000001), .dst = Addr::FromV4(0x0a000100 + number % 8), .dqpn = number},
                .bytes = bytes,
                .active = true,
                .qpn = 1000 + number,
                .pid = 77,
                .peer = absl::StrCat("gpu-node-", number % 8),
                .process = "python3",
                .label = "llm-pretrain",
                .path_port = 50000};
  return flow;
}

wire::Job Job(int rank, uint64_t collectives) {
  wire::Job job;
  job.set_id("00000000000000aa");
  job.set_label("llm-pretrain");
  job.set_pid(70 + static_cast<uint32_t>(rank));
  job.set_rank(rank);
  job.set_ranks(16);
  job.set_collectives(collectives);
  job.mutable_running()->set_function("AllReduce");
  job.add_chunk_qps()->set_qpn(5);
  return job;
}

wire::Collective Collective(uint64_t seq, wire::Collective::State state) {
  wire::Collective c;
  c.set_job_id("00000000000000aa");
  c.set_function("AllReduce");
  c.set_seq(seq);
  c.set_peer(-1);
  c.set_state(state);
  c.set_slow(state == wire::Collective::STATE_DONE);
  c.set_duration_ns(5e6);
  return c;
}

uint32_t OnPath(const FlowSeen&) { return 3; }

wire::Batch DetailOf(WorkBatch& work, const std::vector<FlowSeen>& flows, const wire::ListJobsReply& jobs = {}) {
  wire::Batch batch;
  work.Detail(flows, jobs, OnPath, batch);
  return batch;
}

TEST(UplinkWork, FlowsAreDifferencesAndNamedOnce) {
  WorkBatch work;
  std::vector<FlowSeen> flows = {Flow(1, 1'000'000)};
  EXPECT_THAT(DetailOf(work, flows).flows(), IsEmpty()) << "what it sent before is of no interval";
  flows[0].bytes += 500;
  flows[0].retransmits = 2;
  flows[0].cnps = 1;
  flows.push_back(Flow(2, 70));  // new: all that it sent
  wire::Batch batch = DetailOf(work, flows);
  ASSERT_THAT(batch.flows(), SizeIs(2));
  EXPECT_EQ(batch.flows(0).bytes(), 500u);
  EXPECT_EQ(batch.flows(0).retransmits(), 2u);
  EXPECT_EQ(batch.flows(0).cnps(), 1u);
  EXPECT_EQ(batch.flows(0).path(), 3u);
  EXPECT_EQ(batch.flows(1).bytes(), 70u);
  ASSERT_THAT(batch.definitions().flows(), SizeIs(2));
  EXPECT_EQ(batch.definitions().flows(0).peer(), "gpu-node-1");
  EXPECT_EQ(batch.definitions().flows(0).peer_qpn(), 1u);
  EXPECT_EQ(batch.definitions().flows(0).label(), "llm-pretrain");

  flows[0].bytes += 9;
  batch = DetailOf(work, flows);
  ASSERT_THAT(batch.flows(), SizeIs(1)) << "the other one sent nothing";
  EXPECT_FALSE(batch.has_definitions());
  flows[0].bytes += 9;
  flows[0].label = "eval";
  EXPECT_THAT(DetailOf(work, flows).definitions().flows(), SizeIs(1)) << "its name changed";

  flows[0].bytes = 5;  // another queue pair of the same number
  EXPECT_EQ(DetailOf(work, flows).flows(0).bytes(), 5u);
  work.DefineAgain();
  flows[0].bytes = 6;
  EXPECT_THAT(DetailOf(work, flows).definitions().flows(), SizeIs(1));
  wire::Definitions all;
  work.AddKnown(all);
  EXPECT_THAT(all.flows(), SizeIs(2));
}

// A queue pair that idles leaves the programs' table: its process's bytes are another count.
TEST(UplinkWork, AnotherSourceOfAFlowsBytesIsNoTraffic) {
  WorkBatch work;
  std::vector<FlowSeen> flows = {Flow(1, 1'000'000)};
  DetailOf(work, flows);
  flows[0].posted = true;
  flows[0].bytes = 900'000;
  EXPECT_THAT(DetailOf(work, flows).flows(), IsEmpty()) << "all that it ever posted";
  flows[0].bytes += 10;
  EXPECT_EQ(DetailOf(work, flows).flows(0).bytes(), 10u);
  flows[0].posted = false;
  flows[0].bytes = 12;  // the programs see it again, from zero
  EXPECT_EQ(DetailOf(work, flows).flows(0).bytes(), 12u);
}

TEST(UplinkWork, TheLargestAreToldAndTheRestIsASum) {
  WorkBatch work;
  std::vector<FlowSeen> flows;
  DetailOf(work, flows);
  for (uint32_t f = 1; f <= 300; ++f) flows.push_back(Flow(f, f));
  const wire::Batch batch = DetailOf(work, flows);
  ASSERT_EQ(batch.flows_size(), static_cast<int>(WorkBatch::kMostFlows));
  EXPECT_EQ(batch.flows(0).bytes(), 300u);
  EXPECT_EQ(batch.other_flows().flows(), 44u);
  EXPECT_EQ(batch.other_flows().bytes(), 44u * 45 / 2);
}

TEST(UplinkWork, NumbersOfFlowsThatWentAreGivenOutAgainAtLast) {
  WorkBatch work;
  DetailOf(work, {});
  uint32_t most = 0;
  for (uint32_t round = 0; round < 100; ++round) {
    std::vector<FlowSeen> flows;
    for (uint32_t f = 0; f < 256; ++f) flows.push_back(Flow(round * 256 + f + 1, 10));
    const wire::Batch batch = DetailOf(work, flows);
    ASSERT_EQ(batch.flows_size(), 256) << "round " << round;
    std::set<uint32_t> numbers;
    for (const wire::FlowRecord& flow : batch.flows()) numbers.insert(flow.flow());
    EXPECT_THAT(numbers, SizeIs(256));
    most = std::max(most, *numbers.rbegin());
  }
  EXPECT_EQ(most, WorkBatch::kMostNumbers) << "all were used, and none beyond";
}

TEST(UplinkWork, JobsAreToldWhenTheyChangeAndNowAndThen) {
  WorkBatch work;
  wire::ListJobsReply jobs;
  *jobs.add_jobs() = Job(0, 5);
  *jobs.add_jobs() = Job(1, 5);
  wire::Batch batch = DetailOf(work, {}, jobs);
  ASSERT_THAT(batch.jobs(), SizeIs(2));
  EXPECT_FALSE(batch.jobs(0).has_running()) << "summaries only";
  EXPECT_THAT(batch.jobs(0).chunk_qps(), IsEmpty());
  EXPECT_THAT(DetailOf(work, {}, jobs).jobs(), IsEmpty());
  jobs.mutable_jobs(1)->set_collectives(6);
  batch = DetailOf(work, {}, jobs);
  ASSERT_THAT(batch.jobs(), SizeIs(1));
  EXPECT_EQ(batch.jobs(0).rank(), 1);
  jobs.mutable_jobs(1)->set_ended(true);
  EXPECT_THAT(DetailOf(work, {}, jobs).jobs(), SizeIs(1));
  int idle = 0, ended = 0;
  for (int i = 0; i < 2 * WorkBatch::kTellAgain; ++i) {
    const wire::Batch round = DetailOf(work, {}, jobs);
    for (const wire::Job& job : round.jobs()) ++(job.ended() ? ended : idle);
  }
  EXPECT_EQ(idle, 2) << "it is still there";
  EXPECT_EQ(ended, 0);
}

TEST(UplinkWork, SlowCollectivesAreToldOnceAndThoseThatStandAgain) {
  WorkBatch work;
  wire::ListCollectivesReply reply;
  *reply.add_collectives() = Collective(1, wire::Collective::STATE_DONE);
  *reply.add_collectives() = Collective(2, wire::Collective::STATE_STALLED);
  *reply.add_collectives() = Collective(3, wire::Collective::STATE_RUNNING);
  const auto told = [&](bool again) {
    wire::Batch batch;
    work.Collectives(reply, again, batch);
    return batch.collectives_size();
  };
  EXPECT_EQ(told(false), 2);
  EXPECT_EQ(told(false), 0);
  EXPECT_EQ(told(true), 1);
  reply.mutable_collectives(1)->set_state(wire::Collective::STATE_DONE);
  reply.mutable_collectives(1)->set_slow(true);
  EXPECT_EQ(told(false), 1) << "it is over";
  reply.mutable_collectives(1)->mutable_held()->assign(size_t{1} << 20, 'x');
  reply.mutable_collectives(1)->set_seq(9);
  EXPECT_EQ(told(false), 0) << "too large without any peer";
  EXPECT_EQ(work.left_out(), 1u);
}

TEST(UplinkWork, MuchOfWhatIsSlowIsLeftOut) {
  WorkBatch work;
  wire::ListCollectivesReply reply;
  for (uint64_t seq = 1; seq <= 100; ++seq) {
    wire::Collective& c = *reply.add_collectives();
    c = Collective(seq, wire::Collective::STATE_DONE);
    for (int peer = 0; peer < 200; ++peer) c.add_peers()->set_state(std::string(100, 'x'));
  }
  wire::Batch batch;
  work.Collectives(reply, false, batch);
  EXPECT_LE(batch.ByteSizeLong(), WorkBatch::kCollectiveBytes + 1000);
  ASSERT_GT(batch.collectives_size(), 4);
  EXPECT_TRUE(batch.collectives(0).cut());
  EXPECT_GT(work.left_out(), 80u);
}

// 64 flows at line rate, each with samples of its own delay.
TEST(UplinkWork, ABusyHostCostsLittle) {
  WorkBatch work;
  std::mt19937 random(11);
  std::lognormal_distribution<double> scatter(8.0, 0.7);  // ns; median 3 us
  std::vector<FlowSeen> flows;
  for (uint32_t f = 1; f <= 64; ++f) flows.push_back(Flow(f, 0));
  DetailOf(work, flows);
  double bytes = 0;
  constexpr int kIntervals = 20;
  for (int interval = 0; interval <= kIntervals; ++interval) {
    for (FlowSeen& flow : flows) {
      flow.bytes += 5'000'000'000 + random() % 1'000'000'000;
      flow.queue.Clear();
      for (int i = 0; i < 100; ++i) flow.queue.Add(static_cast<int64_t>(scatter(random)));
    }
    const size_t size = DetailOf(work, flows).ByteSizeLong();
    if (interval > 0) bytes += static_cast<double>(size);
  }
  const double rate = bytes / kIntervals / 10;
  std::printf("64 flows, each with 100 samples of its delay: %.0f B/s\n", rate);
  EXPECT_LT(rate, 700);
}

TEST(UplinkWork, AsksNoMoreThanIsTold) {
  int flows_asked = 0, collectives_asked = 0;
  wire::ListJobsReply jobs;
  std::vector<FlowSeen> flows;
  agent::UplinkWork work({.flows = [&]() -> absl::StatusOr<std::vector<FlowSeen>> {
                            ++flows_asked;
                            return flows;
                          },
                          .jobs = [&]() -> absl::StatusOr<wire::ListJobsReply> { return jobs; },
                          .collectives = [&]() -> absl::StatusOr<wire::ListCollectivesReply> {
                            ++collectives_asked;
                            wire::ListCollectivesReply reply;
                            *reply.add_collectives() = Collective(1, wire::Collective::STATE_STALLED);
                            return reply;
                          }});
  BatchBuilder builder("a", 5);
  int batches = 0;
  const auto pass = [&](int from_s, int to_s) {
    for (int ms = from_s * 1000; ms < to_s * 1000; ms += 200) {
      const auto seen = work.Look(kStart + absl::Milliseconds(ms), 1000);
      if (seen && work.Tell(*seen, builder)) ++batches;
    }
  };
  pass(0, 30);
  EXPECT_EQ(flows_asked, 3);
  EXPECT_EQ(collectives_asked, 0) << "nobody profiles";
  EXPECT_EQ(batches, 0) << "nothing for a host without flows";
  *jobs.add_jobs() = Job(0, 1);
  pass(30, 40);
  EXPECT_EQ(batches, 1) << "the job, and the collective that stands";
  EXPECT_EQ(collectives_asked, 10);

  flows = {Flow(1, 10)};
  const auto seen = work.Look(kStart + absl::Seconds(40), 1000);
  ASSERT_TRUE(seen);
  const auto batch = work.Tell(*seen, builder);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->sequence(), 2u);
  EXPECT_EQ(batch->to_ns() - batch->from_ns(), 10'000'000'000);
  EXPECT_EQ(batch->host(), "a");
  EXPECT_EQ(batch->flows(0).path(), 0u) << "its path was not told of";
}

TEST(UplinkWork, AClockThatIsSetBackHoldsNothingUp) {
  std::vector<FlowSeen> flows = {Flow(1, 10)};
  agent::UplinkWork work(
      {.flows = [&]() -> absl::StatusOr<std::vector<FlowSeen>> { return flows; },
       .jobs = []() -> absl::StatusOr<wire::ListJobsReply> { return wire::ListJobsReply(); },
       .collectives = []() -> absl::StatusOr<wire::ListCollectivesReply> { return wire::ListCollectivesReply(); }});
  BatchBuilder builder("a", 5);
  const auto tell = [&](absl::Time now) {
    const auto seen = work.Look(now, 1000);
    return seen ? work.Tell(*seen, builder) : std::nullopt;
  };
  tell(kStart);
  flows[0].bytes += 5;
  const absl::Time back = kStart - absl::Hours(1);
  EXPECT_FALSE(tell(back).has_value());
  const auto batch = tell(back + absl::Seconds(10));
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->to_ns(), absl::ToUnixNanos(back + absl::Seconds(10)));
  EXPECT_LT(batch->from_ns(), batch->to_ns());
}

}  // namespace
}  // namespace cw::uplink
