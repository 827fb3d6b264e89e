// SPDX-License-Identifier: Apache-2.0
// Collectives of two ranks on two hosts, over the emulator's queue pairs, one of which takes a slow link: the agents
// say which queue pair held them back, and where it goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/rank_process.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int kMbps = 200, kSlowMbps = 20;
constexpr int kFlows = 4, kSender = 0, kReceiver = 1;

class JobsOnFabric : public ::testing::Test {
 protected:
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = "jobstest",
                   .leaves = 2,
                   .spines = 4,
                   .hosts_per_leaf = 1,
                   .link_mbps = kMbps,
                   .ecn = false,
                   .ecmp_seed = 1};
    spec.mode = "observe";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.adjust = [](int, config::Config& config) { config.profile.stall = absl::Seconds(2); };
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    ASSERT_NO_FATAL_FAILURE(StartFlows());
    ASSERT_NO_FATAL_FAILURE(StartRanks());
  }
  void TearDown() override {
    sender.reset();
    receiver.reset();
  }

  // Flows of host 0 to host 1 on all spines that their ports lead to; `slow` and `fast` take different ones.
  void StartFlows() {
    for (uint64_t seed = 1; seed < 20 && fast.id == slow.id; ++seed) {
      emulator.reset();
      absl::StatusOr<std::unique_ptr<Emulator>> made = testbed->NewEmulator(seed);
      ASSERT_TRUE(made.ok()) << made.status();
      emulator = std::move(*made);
      JobSpec job;
      job.pairs = {{kSender, kReceiver}};
      job.qps_per_pair = kFlows;
      job.message_bytes = 65536;
      job.window = 1;  // so a message is posted when the one before it is acknowledged
      job.timeout = 18;
      job.ack_every = 1;
      job.duration = absl::Hours(1);
      ASSERT_TRUE(emulator->AddJob(job).ok());
      ASSERT_TRUE(emulator->Start().ok());
      std::vector<FlowReport> flows;
      ASSERT_TRUE(Eventually([&] {
        flows = emulator->TakeSnapshot().flows;
        return std::all_of(flows.begin(), flows.end(),
                           [&](const FlowReport& f) { return testbed->SpineOf(f, 0) >= 0; });
      }));
      for (const FlowReport& flow : flows) {
        if (testbed->SpineOf(flow, 0) < 0 || testbed->SpineOf(flow, 0) == testbed->SpineOf(flows[0], 0)) continue;
        slow = flows[0];
        fast = flow;
      }
    }
    ASSERT_NE(fast.id, slow.id) << "no seed gave flows on two spines";
    slow_spine = testbed->SpineOf(slow, 0);
  }

  void StartRanks() {
    const auto socket = [&](int host) { return DescribeAgentHost(testbed->fabric(), host).run_dir + "/inproc.sock"; };
    sender = std::make_unique<RankProcess>(socket(kSender), 0, "SEND",
                                           std::vector<uint32_t>{fast.source_qpn, slow.source_qpn});
    receiver = std::make_unique<RankProcess>(socket(kReceiver), 1, "RECEIVE",
                                             std::vector<uint32_t>{fast.destination_qpn, slow.destination_qpn});
    ASSERT_TRUE(sender->started() && receiver->started());
  }

  void WaitForFleetTime() {
    for (const absl::Time end = absl::Now() + absl::Seconds(60); absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(100))) {
      const absl::StatusOr<v1::ClockReply> a = testbed->agent(kSender).Clock(), b = testbed->agent(kReceiver).Clock();
      if (a.ok() && b.ok() && a->tracking().state() == v1::ClockTracking::STATE_SYNCHRONISED &&
          b->tracking().state() == v1::ClockTracking::STATE_SYNCHRONISED &&
          a->tracking().timeline() == b->tracking().timeline())
        return;
    }
    FAIL() << "the hosts do not agree on a time";
  }

  // Steps of both channels go on as messages of the queue pairs are acknowledged (the sender's) and have come (the
  // receiver's, which is told after the sender has told of its post), until each had `messages`.
  void RunCollective(uint32_t seq, uint64_t messages) {
    const int flows[kRankChannels] = {fast.id, slow.id};
    uint64_t first[kRankChannels] = {}, sent[kRankChannels] = {}, received[kRankChannels] = {};
    Snapshot now = emulator->TakeSnapshot();
    for (int c = 0; c < kRankChannels; ++c) first[c] = now.flows.at(static_cast<size_t>(flows[c])).send.messages_done;
    const auto tell = [&](RankProcess& rank, uint32_t c, uint64_t& told) {
      ++told;
      return rank.Tell(told < messages ? RankOrder::kComplete : RankOrder::kFinish, seq, c);
    };
    for (RankProcess* rank : {sender.get(), receiver.get()}) ASSERT_TRUE(rank->Tell(RankOrder::kBegin, seq));
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (*std::min_element(received, received + kRankChannels) < messages ||
           *std::min_element(sent, sent + kRankChannels) < messages) {
      ASSERT_LT(absl::Now(), end) << "the emulator's queue pairs stand still";
      now = emulator->TakeSnapshot();
      for (uint32_t c = 0; c < kRankChannels; ++c) {
        const FlowReport& flow = now.flows.at(static_cast<size_t>(flows[c]));
        const uint64_t come = std::min<uint64_t>(flow.receive.messages() - first[c], sender->Stamps(c).size());
        while (received[c] < come && received[c] < messages) ASSERT_TRUE(tell(*receiver, c, received[c]));
        const uint64_t done = flow.send.messages_done - first[c];
        while (sent[c] < done && sent[c] < messages) ASSERT_TRUE(tell(*sender, c, sent[c]));
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    for (RankProcess* rank : {sender.get(), receiver.get()}) ASSERT_TRUE(rank->Tell(RankOrder::kEnd, seq));
  }

  static bool IsPlaced(const v1::Collective& c) {
    return c.peers_size() > 0 && c.peers(0).qps_size() > 0 && c.peers(0).qps(0).slot() >= 0;
  }

  // The collective of this number once it is in that state; a deadline's default otherwise.
  // placed: and the agent knows the path of the queue pair that held it back.
  v1::Collective WaitFor(int host, uint64_t seq, v1::Collective::State state, bool placed = false) {
    v1::ListCollectivesReply last;
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(50))) {
      v1::ListCollectivesRequest request;
      request.set_job("labjob");
      absl::StatusOr<v1::ListCollectivesReply> reply = testbed->agent(host).ListCollectives(request);
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok()) return {};
      for (const v1::Collective& c : reply->collectives()) {
        if (c.seq() == seq && c.state() == state && (!placed || IsPlaced(c))) return c;
      }
      last = *reply;
    }
    ADD_FAILURE() << "no collective " << seq << " in state " << state << ": " << last.ShortDebugString();
    return {};
  }

  std::string FlowOf(const FlowReport& flow) {
    absl::StatusOr<v1::QpsReply> reply = testbed->agent(kSender).Qps(v1::QpsRequest());
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const v1::Flow& f : reply->flows()) {
      if (f.local_qpn() == flow.source_qpn) return f.id();
    }
    return "none";
  }

  LinkDirection SlowLink() const { return LinkDirection::LeafToSpine(0, slow_spine); }

  // What each of the hosts says of collective 1, that the slow path's queue pair held back.
  void CheckCollective(const std::string& flow) {
    const v1::Collective sent = WaitFor(kSender, 1, v1::Collective::STATE_DONE, true);
    EXPECT_TRUE(sent.network()) << sent.ShortDebugString();
    EXPECT_EQ(sent.held_qpn(), slow.source_qpn) << sent.ShortDebugString();
    EXPECT_EQ(sent.held_flow(), flow);
    EXPECT_EQ(sent.label(), "labjob");
    EXPECT_EQ(sent.pid(), static_cast<uint32_t>(sender->pid()));
    EXPECT_EQ(sent.bytes(), 4u << 20);
    EXPECT_GT(sent.bus_bytes_per_s(), 0);
    ASSERT_EQ(sent.peers_size(), kRankChannels);
    ASSERT_EQ(sent.peers(0).qps_size(), 1);
    const v1::CollectiveQp& qp = sent.peers(0).qps(0);
    EXPECT_EQ(qp.qpn(), slow.source_qpn);
    EXPECT_EQ(qp.peer(), "h1");
    EXPECT_GE(qp.slot(), 0);
    EXPECT_THAT(qp.hops(), Contains(HasSubstr(absl::StrFormat("10.1.%d.", slow_spine))));
    EXPECT_THAT(sent.held(), HasSubstr(flow));

    const v1::Collective received = WaitFor(kReceiver, 1, v1::Collective::STATE_DONE);
    EXPECT_FALSE(received.network());
    EXPECT_THAT(received.held(), HasSubstr("rank 0 sent nothing"));
  }
  // The rank's own stamps of a channel say what its chunks' delays were, give or take the call of the plug-in.
  void CheckDelays(uint32_t channel, const v1::ChunkDelay& delay) {
    const std::vector<RankStamp>&posts = sender->Stamps(channel), &arrivals = receiver->Stamps(channel);
    std::vector<double> least, most;
    for (size_t i = 0; i < std::min(posts.size(), arrivals.size()); i += 2) {  // of ten every second one is stamped
      least.push_back(static_cast<double>(arrivals[i].before_ns - posts[i].after_ns));
      most.push_back(static_cast<double>(arrivals[i].after_ns - posts[i].before_ns));
    }
    ASSERT_EQ(delay.chunks(), least.size()) << "channel " << channel;
    std::sort(least.begin(), least.end());
    std::sort(most.begin(), most.end());
    EXPECT_GT(delay.bound_ns(), 0);
    EXPECT_GE(delay.p50_ns(), least[least.size() / 2] - delay.bound_ns());
    EXPECT_LE(delay.p50_ns(), most[most.size() / 2] + delay.bound_ns());
    EXPECT_GE(delay.max_ns(), least.back() - delay.bound_ns());
    EXPECT_LE(delay.max_ns(), most.back() + delay.bound_ns());
    RecordProperty(absl::StrCat("channel", channel),
                   absl::StrFormat("p50 %.0f of %.0f, max %.0f, bound %.0f ns", delay.p50_ns(), least[least.size() / 2],
                                   delay.max_ns(), delay.bound_ns()));
  }
  const v1::ChunkDelay* DelayOf(const v1::Collective& c, uint32_t qpn) {
    for (const v1::CollectivePeer& op : c.peers()) {
      for (const v1::CollectiveQp& qp : op.qps()) {
        if (op.send() && qp.qpn() == qpn && qp.has_chunk_delay()) return &qp.chunk_delay();
      }
    }
    return nullptr;
  }
  void CheckChunks() {
    v1::Collective sent;
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      sent = WaitFor(kSender, 1, v1::Collective::STATE_DONE, true);
      if (DelayOf(sent, fast.source_qpn) != nullptr && DelayOf(sent, slow.source_qpn) != nullptr) break;
      absl::SleepFor(absl::Milliseconds(100));
    }
    const v1::ChunkDelay *of_fast = DelayOf(sent, fast.source_qpn), *of_slow = DelayOf(sent, slow.source_qpn);
    ASSERT_TRUE(of_fast != nullptr && of_slow != nullptr) << sent.ShortDebugString();
    CheckDelays(0, *of_fast);
    CheckDelays(1, *of_slow);
    // A message needs so much longer on the slow link, whatever else is late; half of it, because the sender is told of
    // its posts late.
    constexpr double kExtraNs = 65536 * 8e3 / kSlowMbps - 65536 * 8e3 / kMbps;
    EXPECT_GT(of_slow->p50_ns(), kExtraNs / 2);
    EXPECT_LT(of_slow->bound_ns(), kExtraNs);
    EXPECT_EQ(sent.chunk_delay().chunks(), of_fast->chunks() + of_slow->chunks());
    EXPECT_EQ(sent.chunk_delay().max_ns(), std::max(of_fast->max_ns(), of_slow->max_ns()));
    EXPECT_THAT(sent.held(), HasSubstr("its chunks took"));
    EXPECT_THAT(sent.held(), HasSubstr("those of the other queue pairs"));
  }
  void CheckJob(const std::string& flow) {
    absl::StatusOr<v1::ListJobsReply> jobs = testbed->agent(kSender).ListJobs(v1::ListJobsRequest());
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    ASSERT_EQ(jobs->jobs_size(), 1) << jobs->ShortDebugString();
    EXPECT_EQ(jobs->jobs(0).slowest_peer(), 1);
    EXPECT_EQ(jobs->jobs(0).slowest_flow(), flow);
    EXPECT_EQ(jobs->jobs(0).slowest_peer_host(), "h1");
    EXPECT_TRUE(jobs->jobs(0).queue_pair_events());
    ASSERT_EQ(jobs->jobs(0).chunk_qps_size(), kRankChannels) << jobs->ShortDebugString();
    EXPECT_GE(jobs->jobs(0).chunk_qps(0).chunk_delay().p50_ns(), jobs->jobs(0).chunk_qps(1).chunk_delay().p50_ns());
    EXPECT_EQ(jobs->jobs(0).chunk_qps(0).peer(), "h1");
    EXPECT_EQ(jobs->jobs(0).chunk_delay().chunks(),
              jobs->jobs(0).chunk_qps(0).chunk_delay().chunks() + jobs->jobs(0).chunk_qps(1).chunk_delay().chunks());

    v1::WhyRequest why;
    why.set_what(flow);
    absl::StatusOr<v1::WhyReply> reply = testbed->agent(kSender).Why(why);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->collective().seq(), 1u);
    EXPECT_EQ(reply->collective().label(), "labjob");
  }
  // One whose queue pair's path is cut: the request is never complete.
  void CheckStall() {
    ASSERT_TRUE(testbed->fabric().SetFault(SlowLink(), Fault::Drop()).ok());
    ASSERT_TRUE(sender->Tell(RankOrder::kBegin, 2));
    ASSERT_TRUE(sender->Tell(RankOrder::kComplete, 2, 0));
    const v1::Collective stalled = WaitFor(kSender, 2, v1::Collective::STATE_STALLED);
    EXPECT_EQ(stalled.peers_size(), kRankChannels);
    v1::EventsRequest events;
    std::vector<v1::Event> told;
    events.set_type("job");
    ASSERT_TRUE(testbed->agent(kSender)
                    .Events(events,
                            [&](const v1::Event& event) {
                              told.push_back(event);
                              return true;
                            })
                    .ok());
    ASSERT_EQ(told.size(), 1u);
    EXPECT_THAT(told[0].text(), HasSubstr("AllReduce 2 of labjob, rank 0 of 2 stands for"));
    EXPECT_THAT(told[0].text(), HasSubstr("the network to rank 1"));
    ASSERT_TRUE(sender->Tell(RankOrder::kEnd, 2));
  }
  bool EndsInTime() {
    for (const absl::Time end = absl::Now() + absl::Seconds(10); absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(50))) {
      const absl::StatusOr<v1::ListJobsReply> jobs = testbed->agent(kSender).ListJobs(v1::ListJobsRequest());
      if (jobs.ok() && jobs->jobs_size() == 1 && jobs->jobs(0).ended()) return true;
    }
    return false;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
  std::unique_ptr<RankProcess> sender, receiver;
  FlowReport fast, slow;
  int slow_spine = -1;
};

TEST_F(JobsOnFabric, TheSlowPathsQueuePairIsNamedAndThenTheOneThatStands) {
  ASSERT_TRUE(testbed->fabric().SetLinkRate(SlowLink(), kSlowMbps).ok());
  ASSERT_NO_FATAL_FAILURE(WaitForFleetTime());
  ASSERT_NO_FATAL_FAILURE(RunCollective(1, 10));
  const std::string flow = FlowOf(slow);
  ASSERT_NO_FATAL_FAILURE(CheckCollective(flow));
  ASSERT_NO_FATAL_FAILURE(CheckChunks());
  ASSERT_NO_FATAL_FAILURE(CheckJob(flow));
  ASSERT_NO_FATAL_FAILURE(CheckStall());
  EXPECT_EQ(sender->End(), 0);
  EXPECT_EQ(receiver->End(), 0);
  EXPECT_TRUE(EndsInTime());
}

}  // namespace
}  // namespace cw::lab
