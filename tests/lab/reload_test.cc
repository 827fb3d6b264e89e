// SPDX-License-Identifier: Apache-2.0
// SIGHUP: the whole configuration is read again, under traffic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;
using ::testing::HasSubstr;
using ::testing::Not;

class Reload : public ::testing::Test {
 protected:
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = "reloadtest", .hosts_per_leaf = 2, .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "protect";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed_ = *std::move(up);
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    JobSpec job = SteadyTraffic();
    job.pairs = {{0, 2}};  // another leaf's
    ASSERT_TRUE(emulator_->AddJob(job).ok());
    ASSERT_TRUE(emulator_->Start().ok());
    ASSERT_TRUE(Eventually([&] { return Steered() == 4; }));
  }

  std::string File() { return absl::StrCat(DescribeAgentHost(testbed_->fabric(), 0).run_dir, "/agent.toml"); }
  std::string Read() {
    std::ostringstream text;
    text << std::ifstream(File()).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) { std::ofstream(File()) << text; }

  v1::StatusReply Status() {
    absl::StatusOr<v1::StatusReply> status = testbed_->agent(0).Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.value_or(v1::StatusReply());
  }
  // Flows to peers: the agent puts each on a path.
  int Steered() {
    const absl::StatusOr<v1::QpsReply> qps = testbed_->agent(0).Qps({});
    if (!qps.ok()) return -1;
    int steered = 0;
    for (const v1::Flow& flow : qps->flows()) steered += flow.slot() >= 0 && !flow.peer().empty() ? 1 : 0;
    return steered;
  }
  int Pairs() {
    const absl::StatusOr<v1::PathsReply> paths = testbed_->agent(0).Paths({});
    return paths.ok() ? paths->pairs_size() : -1;
  }

  // A pair with flows is probed so often.
  bool HasActivePairAt(double interval_s) {
    const absl::StatusOr<v1::PathsReply> paths = testbed_->agent(0).Paths({});
    return paths.ok() && std::any_of(paths->pairs().begin(), paths->pairs().end(), [&](const v1::Pair& pair) {
             return pair.active() && std::abs(pair.interval_s() - interval_s) < interval_s / 10;
           });
  }

  // SIGHUP, and what the agent says of it.
  std::string Hup() {
    v1::EventsRequest request;
    (void)testbed_->agent(0).Events({}, [&](const v1::Event& event) {
      request.set_after_seq(event.seq());
      return true;
    });
    request.set_type("config");
    EXPECT_EQ(kill(testbed_->agent_pid(0), SIGHUP), 0);
    std::string told;
    EXPECT_TRUE(Eventually([&] {
      (void)testbed_->agent(0).Events(request, [&](const v1::Event& event) {
        told = event.text();
        return true;
      });
      return !told.empty();
    }));
    return told;
  }

  void ExpectNothingStoodStill() {
    for (const FlowReport& flow : emulator_->TakeSnapshot().flows) {
      EXPECT_EQ(flow.requester.timeouts, 0u);
      EXPECT_FALSE(flow.dead);
    }
  }

  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<Emulator> emulator_;
};

TEST_F(Reload, WhatCanChangeDoesAndTheRestIsNamed) {
  const v1::StatusReply before = Status();
  EXPECT_EQ(before.config().fingerprint().size(), 16u);
  std::string text = Read();
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"mode = \"protect\"", "mode = \"optimize\""},
           {"stall = \"10s\"", "stall = \"7s\""},
           {"active_interval = \"400us\"", "active_interval = \"10ms\""}}) {
    ASSERT_THAT(text, HasSubstr(from));
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  const size_t size = text.find("\nmax_flows = ");
  ASSERT_NE(size, std::string::npos);
  text.insert(size + 13, "1");  // ten times as many and more
  Write(text);
  const std::string told = Hup();
  EXPECT_THAT(told, HasSubstr("mode \"protect\" → \"optimize\""));
  EXPECT_THAT(told, HasSubstr("profile.stall \"10s\" → \"7s\""));
  EXPECT_THAT(told, HasSubstr("waits for a restart: limits.max_flows"));
  const v1::StatusReply after = Status();
  EXPECT_EQ(after.mode(), v1::MODE_OPTIMIZE);
  EXPECT_THAT(told, HasSubstr("probe.active_interval \"400us\" → \"10ms\""));
  EXPECT_TRUE(Eventually([&] { return HasActivePairAt(0.01); })) << "the prober's own interval";
  EXPECT_NE(after.config().fingerprint(), before.config().fingerprint());
  ASSERT_EQ(after.config().waiting_size(), 1);
  EXPECT_EQ(after.config().waiting(0), "limits.max_flows");
  EXPECT_THAT(Hup(), HasSubstr("waits for a restart: limits.max_flows")) << "it still does";
  ExpectNothingStoodStill();
}

TEST_F(Reload, ABrokenFileChangesNothing) {
  const std::string good = Read(), fingerprint = Status().config().fingerprint();
  Write(absl::StrReplaceAll(good, {{"mode = \"protect\"", "mode = \"optimize\""}}) + "\n[steering]\nmove_gap = 5\n");
  EXPECT_THAT(Hup(), HasSubstr("nothing is changed, the configuration is wrong"));
  // A file that can be read, with a peer that has another peer's address.
  const size_t last = good.rfind("addresses = ");
  ASSERT_NE(last, std::string::npos);
  Write(absl::StrCat(good, "\n[[peer]]\nname = \"twin\"\n", good.substr(last, good.find('\n', last) - last), "\n"));
  EXPECT_THAT(Hup(), HasSubstr("nothing is changed"));
  EXPECT_EQ(Status().mode(), v1::MODE_PROTECT);
  EXPECT_EQ(Status().config().fingerprint(), fingerprint);
  Write(good);
  EXPECT_THAT(Hup(), HasSubstr("is the same"));
  EXPECT_EQ(Steered(), 4);
  ExpectNothingStoodStill();
}

TEST_F(Reload, PeersComeAndGo) {
  const std::string good = Read();
  const int pairs = Pairs();
  ASSERT_GT(pairs, 1);
  const size_t first = good.find("[[peer]]");
  ASSERT_NE(first, std::string::npos) << good;
  Write(good.substr(0, first));
  EXPECT_THAT(Hup(), HasSubstr("the [[peer]] tables"));
  EXPECT_EQ(Pairs(), 0);
  EXPECT_TRUE(Eventually([&] { return Steered() == 0; })) << "they leave on their native ports";
  Write(good);
  EXPECT_THAT(Hup(), HasSubstr("the [[peer]] tables"));
  EXPECT_EQ(Pairs(), pairs);
  EXPECT_TRUE(Eventually([&] { return Steered() == 4; }));
  // Peers remember the session, and what they had of it is a replay to them.
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply status = Status();
    return status.peers_size() > 0 && std::all_of(status.peers().begin(), status.peers().end(), [](const auto& peer) {
             return peer.last_reply_ago_s() >= 0 && peer.last_reply_ago_s() < 2 && peer.paths_live() > 0;
           });
  })) << Status().DebugString();
  ExpectNothingStoodStill();
}

}  // namespace
}  // namespace cw::lab
