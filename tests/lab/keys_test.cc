// SPDX-License-Identifier: Apache-2.0
// The group's secret is changed under traffic, host by host, and no probe is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

class Keys : public ::testing::Test {
 protected:
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = "keystest", .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "protect";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed_ = *std::move(up);
  }

  void StartTraffic() {
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    ASSERT_TRUE(emulator_->AddJob(SteadyTraffic()).ok());
    ASSERT_TRUE(emulator_->Start().ok());
    ASSERT_TRUE(Eventually([&] { return testbed_->agent(0).Qps({})->flows_size() == 4; }));
  }

  int hosts() { return testbed_->fabric().hosts(); }
  std::string Secret(int id) { return absl::StrCat(testbed_->fabric().RunDir(), id == 0 ? "/secret" : "/second"); }

  void WriteSecret(int id, const std::string& text) {
    const std::string path = Secret(id);
    std::ofstream(path) << text;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }

  // [keys] of a host's file; the rest of it stays.
  void SetKeys(int host, bool first, bool second, int send) {
    const std::string path = absl::StrCat(DescribeAgentHost(testbed_->fabric(), host).run_dir, "/agent.toml");
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::string config = text.str();
    const size_t from = config.find("\n[keys]\n"), to = config.find("\n[", from + 2);
    ASSERT_NE(from, std::string::npos);
    config.replace(from, to - from,
                   absl::StrCat("\n[keys]\nsecret_file = \"", first ? Secret(0) : "", "\"\nsecond_secret_file = \"",
                                second ? Secret(1) : "", "\"\nsend_key_id = ", send, "\n"));
    std::ofstream(path) << config;
  }

  uint64_t newest_event(int host) {
    uint64_t newest = 0;
    (void)testbed_->agent(host).Events({}, [&](const v1::Event& event) {
      newest = std::max(newest, event.seq());
      return true;
    });
    return newest;
  }

  // SIGHUP, and what the agent says of it.
  v1::Event Reload(int host) {
    v1::EventsRequest request;
    request.set_type("keys");
    request.set_after_seq(newest_event(host));
    EXPECT_EQ(kill(testbed_->agent_pid(host), SIGHUP), 0);
    v1::Event told;
    EXPECT_TRUE(Eventually([&] {
      (void)testbed_->agent(host).Events(request, [&](const v1::Event& event) {
        told = event;
        return true;
      });
      return told.seq() != 0;
    }));
    return told;
  }

  void ChangeAll(bool first, bool second, int send, const std::string& accepted) {
    for (int host = 0; host < hosts(); ++host) {
      SetKeys(host, first, second, send);
      const v1::Event told = Reload(host);
      EXPECT_EQ(told.text(), absl::StrCat("keys changed: sends with key id ", send, ", accepts ", accepted));
      Hold(absl::Milliseconds(300));  // hosts differ for a while: rounds of every kind fall in between
    }
  }

  // What the agents count that would have grown by a probe that was lost on the way or not understood.
  struct Books {
    uint64_t bad_mac, stale, died, answered, replies;
  };
  Books Count() {
    return {testbed_->CounterSum("probe_bad_mac"), testbed_->CounterSum("probe_stale"),
            testbed_->CounterSum("slots_died"), testbed_->CounterSum("probe_requests"),
            testbed_->CounterSum("probe_replies")};
  }

  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<Emulator> emulator_;
};

TEST_F(Keys, AreChangedUnderTrafficWithoutLosingAProbe) {
  ASSERT_NO_FATAL_FAILURE(StartTraffic());
  const Books before = Count();
  const int64_t began_ns = MonotonicNs();
  WriteSecret(1, "the lab's second secret, known to all of this machine");
  ChangeAll(true, true, 0, "0 and 1");
  ChangeAll(true, true, 1, "0 and 1");
  ChangeAll(false, true, 1, "1");
  // And round again, so that both numbers were each the old one and the new one.
  WriteSecret(0, "the lab's third secret, and what was the first is not accepted");
  ChangeAll(true, true, 1, "0 and 1");
  ChangeAll(true, true, 0, "0 and 1");
  ChangeAll(true, false, 0, "0");
  const Books after = Count();

  EXPECT_EQ(after.bad_mac - before.bad_mac, 0u) << "every probe was understood";
  // A host that does not understand another kills all paths to it, one over each of the four spines. One path that is
  // called dead is this machine's doing: the soak counts those (docs/benchmarks.md).
  std::string told;
  for (const auto& death : testbed_->PathDeaths(began_ns)) absl::StrAppend(&told, death.text, "\n");
  EXPECT_LT(after.died - before.died, 4u) << told;
  const int64_t answered = static_cast<int64_t>(after.answered - before.answered);
  const int64_t replies = static_cast<int64_t>(after.replies - before.replies + after.stale - before.stale);
  EXPECT_GT(answered, 5'000) << "there were probes to lose";
  // The agents' counters are read one after the other: some hundred probes go by meanwhile.
  EXPECT_LT(std::abs(answered - replies), answered / 20) << answered << " requests answered, " << replies << " replies";
  for (const FlowReport& flow : emulator_->TakeSnapshot().flows) {
    EXPECT_EQ(flow.requester.timeouts, 0u);  // NAKs there are: a lab whose processors stand still reorders packets
    EXPECT_FALSE(flow.dead);
  }
}

TEST_F(Keys, WhatWouldLoseProbesIsRefusedAndChangesNothing) {
  WriteSecret(1, "the lab's second secret, known to all of this machine");
  SetKeys(0, false, true, 1);  // at once, though nobody else has it
  EXPECT_NE(Reload(0).text().find("key id 0, which would no longer be accepted"), std::string::npos);
  const std::string path = Secret(0);
  SetKeys(0, true, true, 0);
  WriteSecret(0, "another secret under the old name, with which nobody else sends");
  EXPECT_NE(Reload(0).text().find("is another one now"), std::string::npos);
  const absl::StatusOr<v1::StatusReply> status = testbed_->agent(0).Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->keys().accepted_size(), 1);
  EXPECT_EQ(status->keys().send_id(), 0u);
  const uint64_t bad = testbed_->CounterSum("probe_bad_mac");
  ASSERT_TRUE(AfterReplies(*testbed_, 50));
  EXPECT_EQ(testbed_->CounterSum("probe_bad_mac"), bad) << "the hosts still understand each other";
}

}  // namespace
}  // namespace cw::lab
