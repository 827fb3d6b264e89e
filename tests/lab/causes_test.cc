// SPDX-License-Identifier: Apache-2.0
// What the agents say of why flows are slow, against what was done to them.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr double kMbps = 100;

class CausesOnFabric : public ::testing::Test {
 protected:
  void Up(int hosts_per_leaf) {
    TestbedSpec spec;
    spec.fabric = {.lab = "causestest",
                   .spines = 4,
                   .hosts_per_leaf = hosts_per_leaf,
                   .link_mbps = kMbps,
                   .host_link_mbps = kMbps,
                   .ecmp_seed = 1};
    spec.mode = "optimize";
    spec.active_interval = absl::Milliseconds(5);
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.adjust = [](int, config::Config& config) { config.steering.find_causes = true; };
    auto up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    auto made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
  }

  static JobSpec Job(int from, int to) {
    JobSpec job;
    job.name = absl::StrCat("job", from);
    job.pairs = {{from, to}};
    job.message_bytes = 256 << 10;
    job.duration = absl::Hours(1);
    job.path_mtu = 4096;
    job.rate = RateConfig::ForLine(0.9 * kMbps * 1e6);
    return job;
  }

  // The cause of the first flow that `host` sends, as soon as it is told.
  std::string CauseOf(int host, const std::string& wanted, absl::Duration within) {
    std::string cause, text;
    for (const absl::Time end = absl::Now() + within; absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
      absl::StatusOr<v1::QpsReply> reply = testbed->agent(host).Qps({});
      if (!reply.ok() || reply->flows().empty()) continue;
      cause = reply->flows(0).cause();
      text = reply->flows(0).cause_text();
      if (cause == wanted) break;
    }
    std::printf("host %d: %s, %s\n", host, cause.c_str(), text.c_str());
    return cause;
  }

  std::vector<v1::Event> EventsOf(int host, const std::string& type) {
    v1::EventsRequest request;
    request.set_type(type);
    std::vector<v1::Event> events;
    const absl::Status status = testbed->agent(host).Events(request, [&](const v1::Event& event) {
      events.push_back(event);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return events;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(CausesOnFabric, ManySendersIntoOneReceiverAreIncastAndNobodyMoves) {
  ASSERT_NO_FATAL_FAILURE(Up(3));
  for (int host = 0; host < 3; ++host) ASSERT_TRUE(emulator->AddJob(Job(host, 3)).ok());
  ASSERT_TRUE(emulator->Start().ok());
  for (int host = 0; host < 3; ++host) EXPECT_EQ(CauseOf(host, "incast", absl::Seconds(30)), "incast");
  int before = 0, after = 0;
  for (int host = 0; host < 3; ++host) before += static_cast<int>(EventsOf(host, "decision").size());
  absl::SleepFor(absl::Seconds(5));
  for (int host = 0; host < 3; ++host) after += static_cast<int>(EventsOf(host, "decision").size());
  EXPECT_EQ(after, before) << "moves cannot help";
}

TEST_F(CausesOnFabric, AHostThatSendsLessThanItCouldIsASlowSender) {
  ASSERT_NO_FATAL_FAILURE(Up(1));
  JobSpec job = Job(0, 1);
  job.packet_interval = absl::Milliseconds(2);  // some 17 Mbit/s
  ASSERT_TRUE(emulator->AddJob(job).ok());
  ASSERT_TRUE(emulator->Start().ok());
  EXPECT_EQ(CauseOf(0, "slow sender", absl::Seconds(30)), "slow sender");
  const std::vector<v1::Event> events = EventsOf(0, "cause");
  ASSERT_FALSE(events.empty());
  EXPECT_GT(events.front().evidence_size(), 5);
  EXPECT_TRUE(EventsOf(0, "decision").empty());
}

}  // namespace
}  // namespace cw::lab
