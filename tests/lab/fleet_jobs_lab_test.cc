// SPDX-License-Identifier: Apache-2.0
// A job of two ranks on two hosts with real agents, as the fleet service shows it: one job, who talks to whom, who
// waits for whom, and which finding it suffers from.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "tests/lab/rank_process.h"
#include "userspace/lab/agent_launcher.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FleetJobsOnFabric : public FleetServiceRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleetjobs", 1);
    spec.fabric.link_mbps = spec.fabric.host_link_mbps = 100;
    spec.fabric.ecmp_seed = 1;
    spec.adjust = [](int, config::Config& config) { config.profile.stall = absl::Seconds(2); };
    Up(spec);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
    ASSERT_NO_FATAL_FAILURE(StartFlows());
    const auto socket = [&](int host) { return DescribeAgentHost(testbed_->fabric(), host).run_dir + "/inproc.sock"; };
    std::vector<uint32_t> sends, receives;
    for (const FlowReport& flow : emulator_->TakeSnapshot().flows) {
      if (testbed_->SpineOf(flow, 0) < 0 || sends.size() == kRankChannels) continue;
      sends.push_back(flow.source_qpn);
      receives.push_back(flow.destination_qpn);
    }
    ASSERT_EQ(sends.size(), static_cast<size_t>(kRankChannels));
    sender_ = std::make_unique<RankProcess>(socket(0), 0, "SEND", sends);
    receiver_ = std::make_unique<RankProcess>(socket(1), 1, "RECEIVE", receives);
    ASSERT_TRUE(sender_->started() && receiver_->started());
  }
  void TearDown() override {
    sender_.reset();
    receiver_.reset();
    if (emulator_ != nullptr) emulator_->Stop();
  }

  void StartFlows() {
    auto made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    JobSpec job;
    job.name = "labjob";  // as the ranks' environment has it
    job.pairs = {{0, 1}};
    job.qps_per_pair = 4;
    job.message_bytes = 65536;
    job.duration = absl::Hours(1);
    job.rate = RateConfig::ForLine(20e6);
    job.packet_interval = absl::Milliseconds(2);
    ASSERT_TRUE(emulator_->AddJob(job).ok());
    ASSERT_TRUE(emulator_->Start().ok());
    ASSERT_TRUE(Eventually([&] {
      const std::vector<FlowReport> flows = emulator_->TakeSnapshot().flows;
      return !flows.empty() &&
             std::all_of(flows.begin(), flows.end(), [&](const FlowReport& f) { return testbed_->SpineOf(f, 0) >= 0; });
    }));
  }

  json Job() const {
    const json reply = Ask({"jobs", "labjob"});
    return reply.contains("jobs") && reply["jobs"].size() == 1 ? reply["jobs"][0] : json{{"reply", reply}};
  }
  std::string HeldUp() const {
    const json job = Job();
    return job.contains("held_up") && !job["held_up"].empty() ? job["held_up"][0].get<std::string>() : "";
  }

  std::unique_ptr<Emulator> emulator_;
  std::unique_ptr<RankProcess> sender_, receiver_;
};

TEST_F(FleetJobsOnFabric, RanksOfTwoHostsAreOneJobWithItsWaysAndWaits) {
  ASSERT_FALSE(HasFatalFailure());
  const auto whole = [&] {
    const json job = Job();
    return job.value("ranks_known", 0) == 2 && job.contains("pairs") && !job["pairs"].empty() &&
           !job["links"].empty() && job["pairs"][0].value("flows", 0) == 4;
  };
  ASSERT_TRUE(Eventually(whole, absl::Minutes(1))) << Job().dump(1) << Why();
  // A full second, behind what they told.
  const absl::Time second = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 1);
  const std::string then = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", second, absl::UTCTimeZone());
  ASSERT_TRUE(Eventually([&] { return absl::Now() > second; }));
  const json job = Job();
  EXPECT_EQ(job["ranks"], 2) << job.dump(1);
  EXPECT_EQ(job["hosts"], (json{"h0", "h1"}));
  EXPECT_EQ(job["pairs"][0]["from"], "h0");
  EXPECT_EQ(job["pairs"][0]["to"], "h1");
  EXPECT_GT(job["bytes_per_s"].get<double>(), 1e5) << "of about 2.5e6";
  EXPECT_EQ(job["rank_list"][1]["host"], "h1");
  EXPECT_GE(job["links"].size(), 4u) << "two NICs' and those of a spine at least";
  EXPECT_EQ(Ask({"jobs"})["jobs"].size(), 1u);

  // Of one host, by the usual verbs; and as it was.
  EXPECT_EQ(bed_->Ask({"qps", "--host", "h0"})["flows"].size(), 4u);
  EXPECT_EQ(bed_->Ask({"qps", "--host", "h0", "--at", then})["flows"].size(), 4u);
  EXPECT_EQ(bed_->Ask({"jobs", "--host", "h1", "--job", "labjob"})["jobs"][0]["job"]["rank"], 1);
  EXPECT_EQ(Ask({"jobs", "labjob", "--at", then})["jobs"][0]["hosts"].size(), 2u);
  const json diff = Ask({"jobs", "diff", "labjob@" + then, "labjob"});
  EXPECT_THAT(diff.value("summary", diff.dump()), AllOf(HasSubstr("first run"), HasSubstr("Gbit/s")));

  // What is usual has to be known before something costs more.
  for (uint32_t seq = 1; seq <= 6; ++seq) {
    for (const RankOrder order : {RankOrder::kBegin, RankOrder::kEnd})
      for (RankProcess* rank : {sender_.get(), receiver_.get()}) ASSERT_TRUE(rank->Tell(order, seq));
  }
  // A rank waits for one that has not begun.
  ASSERT_TRUE(receiver_->Tell(RankOrder::kBegin, 7));
  EXPECT_TRUE(Eventually([&] { return HeldUp().find("has not begun it") != std::string::npos; })) << Job().dump(1);
  EXPECT_THAT(HeldUp(), AllOf(HasSubstr("AllReduce 7 stands"), HasSubstr("rank 1 (h1) waits for rank 0 (h0)"),
                              HasSubstr("not the network")));
  EXPECT_EQ(bed_->Ask({"collectives", "--host", "h1"})["collectives"][0]["collective"]["seq"], 7);
  EXPECT_TRUE(Eventually([&] { return !TheOne("not the network").is_null(); })) << Findings().dump(1) << Why();
  EXPECT_EQ(TheOne("not the network").value("scope", ""), "job labjob");
  EXPECT_EQ(TheOne("not the network").value("hosts", json()), json{"h0"}) << "whose process has not begun";

  // One that stands in its middle, and what that cost: time counts from the first data on.
  ASSERT_TRUE(sender_->Tell(RankOrder::kBegin, 7));
  for (RankProcess* rank : {sender_.get(), receiver_.get()}) ASSERT_TRUE(rank->Tell(RankOrder::kEnd, 7));
  for (const RankOrder order : {RankOrder::kBegin, RankOrder::kComplete})
    for (RankProcess* rank : {sender_.get(), receiver_.get()}) ASSERT_TRUE(rank->Tell(order, 8));
  EXPECT_TRUE(Eventually([&] { return HeldUp().find("AllReduce 8 stands") != std::string::npos; })) << Job().dump(1);
  for (RankProcess* rank : {sender_.get(), receiver_.get()}) ASSERT_TRUE(rank->Tell(RankOrder::kEnd, 8));
  const auto cost = [&] {
    const json reply = Ask({"cost", "labjob"});
    return reply.contains("costs") && !reply["costs"].empty() ? reply["costs"][0] : json{{"reply", reply}};
  };
  EXPECT_TRUE(Eventually([&] { return cost().value("lost_s", 0.0) > 1; }))
      << cost().dump(1) << testbed_->agent(1).ListCollectives({})->DebugString();
  EXPECT_EQ(cost()["job"], "labjob");
  EXPECT_GE(cost()["collectives"], 1) << "on a busy machine another one may have stood, too";
  const json one = cost();  // it may still grow
  EXPECT_NEAR(one["gpu_hours"].get<double>() * 3600, one["lost_s"].get<double>() * 2, 0.1) << "two ranks";
}

TEST_F(FleetJobsOnFabric, AFindingNamesTheJobThatSuffers) {
  ASSERT_FALSE(HasFatalFailure());
  const auto known = [&] {
    const json job = Job();
    return SeesAll() && job.contains("pairs") && !job["pairs"].empty() && job["pairs"][0].value("flows", 0) == 4;
  };
  ASSERT_TRUE(Eventually(known, absl::Minutes(1))) << Job().dump(1) << Why();
  for (uint32_t seq = 1; seq <= 6; ++seq) {  // what is usual
    for (const RankOrder order : {RankOrder::kBegin, RankOrder::kEnd})
      for (RankProcess* rank : {sender_.get(), receiver_.get()}) ASSERT_TRUE(rank->Tell(order, seq));
  }
  const int spine = testbed_->SpineOf(emulator_->TakeSnapshot().flows.at(0), 0);
  // The sender's first channel goes by the spine that dies; it stands until the end.
  ASSERT_TRUE(sender_->Tell(RankOrder::kBegin, 7) && sender_->Tell(RankOrder::kFinish, 7, 1));
  for (int leaf = 0; leaf < 2; ++leaf) ASSERT_TRUE(SetCable(leaf, spine, Fault::Drop()).ok());
  // By the paths of its flows; that it sends little is its agent's word.
  const auto dead = [&]() -> json {
    for (const json& finding : Findings()) {
      if (finding["cause"] != "slow sender" && finding["jobs"] == json{"labjob"}) return finding;
    }
    return {};
  };
  ASSERT_TRUE(Eventually([&] { return !dead().is_null(); })) << Findings().dump(1) << Why();
  EXPECT_THAT(dead()["cause"].get<std::string>(), HasSubstr("dead"));
  EXPECT_THAT(Job()["findings"], testing::Contains(dead()["id"]));

  // The agents only observe: had they acted, the collective would not have stood.
  const auto of_spine = [&]() -> json {
    const json reply = Ask({"cost", "labjob"});
    for (const json& cost : reply.value("costs", json::array())) {
      if (cost.value("finding", "") == dead().value("id", "?")) return cost;
    }
    return {{"reply", reply}};
  };
  EXPECT_TRUE(Eventually([&] { return of_spine().value("avoidable_gpu_hours", 0.0) > 2.0 / 3600; }))
      << of_spine().dump(1) << bed_->Ask({"events", "--host", "h0"}).dump(1);
  EXPECT_LE(of_spine()["avoidable_gpu_hours"], of_spine()["gpu_hours"]) << "no more than was lost";
}

}  // namespace
}  // namespace cw::lab
