// SPDX-License-Identifier: Apache-2.0
// Tail repair on real soft-RoCE: NAKs that nobody needs break no queue pair and no data, and the end of a message that
// died with a path is resent at once, not after the queue pair's timer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

constexpr int64_t kDataBytes = 8192;  // in 5 ms; probes and messages are far less

class NakTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmnak";
    options.log_dir = CW_VM_LOG_DIR "/nak";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.emplace_back(CW_NAKS, "/usr/bin/cw_vm_naks");
    options.image.files.emplace_back("/usr/bin/rping", "/usr/bin/rping");
    Begin(options, Config(true));
    AwaitPaths();
  }
  static config::Config Config(bool repair) {
    config::Config config = AgentConfig();
    config.steering.repair_tails = repair;
    return config;
  }
  static void AwaitPaths() {
    if (setup_.ok()) setup_ = agents_->WaitForPaths(absl::Seconds(60));
  }
  static bool Eventually(const std::function<bool()>& done) {
    return AgentsFixture::Eventually(done, absl::Seconds(30), absl::Milliseconds(300));
  }

  // NAKs for machine i's queue pair; how many there were.
  static std::unique_ptr<Command> StartNaks(int i, const QueuePair& qp, int seconds, int interval_us) {
    auto naks =
        rack_->machine(i).Start(absl::StrFormat("exec cw_vm_naks %s %s %d %d %d %d", Rack::FabricAddress(i),
                                                Rack::FabricAddress(1 - i), qp.lqpn, qp.rqpn, seconds, interval_us));
    EXPECT_TRUE(naks.ok()) << naks.status();
    return naks.ok() ? *std::move(naks) : nullptr;
  }
  static nlohmann::json Sent(Command& naks) {
    auto ended = naks.Wait(absl::Seconds(40));
    EXPECT_TRUE(ended.ok() && ended->exit_code == 0) << ended.status() << naks.output();
    auto json = nlohmann::json::parse(naks.output(), nullptr, false);
    return json.is_object() ? json : nlohmann::json{{"naks", 0}, {"busy", 0}};
  }

  void NaksUnder(const std::string& tool) {
    auto before = RxeCounters(rack_->machine(0));
    ASSERT_TRUE(before.ok()) << before.status();
    auto run = Perftest::Start(*rack_, {.tool = tool, .arguments = "-q 2 -D 7 -s 65536 -u 18"});
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
    auto qps = WaitForQueuePairs(rack_->machine(0), 2, absl::Seconds(30));
    ASSERT_TRUE(qps.ok()) << qps.status();
    std::vector<std::unique_ptr<Command>> naks;
    for (const QueuePair& qp : *qps) naks.push_back(StartNaks(0, qp, 3, 50'000));
    unsigned sent = 0, busy = 0;
    for (auto& command : naks) {
      ASSERT_NE(command, nullptr);
      const nlohmann::json counts = Sent(*command);
      sent += counts.at("naks").get<unsigned>();
      busy += counts.at("busy").get<unsigned>();
    }
    EXPECT_TRUE(run_->running()) << "perftest ended before the last NAK";
    auto result = run_->Wait(absl::Seconds(60));
    ASSERT_TRUE(result.ok()) << tool << ": " << result.status();
    EXPECT_GT(result->messages, 0u) << result->output;
    EXPECT_GT(busy, 10u) << tool;
    const auto after = RxeCounters(rack_->machine(0));
    ASSERT_TRUE(after.ok()) << after.status();
    for (const char* broken : {"retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"}) {
      EXPECT_EQ(after->at(broken), before->at(broken)) << tool << " " << broken;
    }
    const uint64_t retries = after->at("completer_retry_err") - before->at("completer_retry_err");
    EXPECT_GT(retries, 0u) << "soft-RoCE took no NAK at all: the test shows nothing";
    std::printf("%s: %u NAKs (%u with packets under way), soft-RoCE went back %d times, %.1f MB/s\n", tool.c_str(),
                sent, busy, static_cast<int>(retries), result->average_mb_per_s);
  }

  // Longest time in which machine i's port carried no data towards it, from now on for so long.
  absl::Duration LongestSilence(int i, absl::Duration span) {
    const auto bytes = [&] {
      return static_cast<int64_t>(rack_->fabric()
                                      .Link(lab::LinkDirection::LeafToHost(rack_->port(i)))
                                      .value_or(lab::LinkCounters())
                                      .carried_bytes);
    };
    absl::Duration longest;
    absl::Time last = absl::Now();
    int64_t before = bytes();
    for (const absl::Time end = last + span; absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(5));
      const int64_t now = bytes();
      if (now - before > kDataBytes) last = absl::Now();
      longest = std::max(longest, absl::Now() - last);
      before = now;
    }
    return longest;
  }

  static uint64_t Counter(int i, const std::string& name) {
    const auto reply = agents_->Ctl(i, "counters");
    EXPECT_TRUE(reply.ok()) << reply.status();
    for (const auto& counter : reply.ok() ? reply->at("counters") : nlohmann::json::array()) {
      if (counter.at("name") == name) return counter.at("value").get<uint64_t>();
    }
    return 0;
  }

  // One queue pair with one message under way at a time. Its timer is 18 minutes long, because soft-RoCE's runs
  // through, progress or not: what goes on within seconds was asked for.
  void StartTails() {
    auto run = Perftest::Start(*rack_, {.arguments = "-q 1 -t 1 -D 400 -s 65536 -u 28"});
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
    ASSERT_TRUE(Eventually([&] {
      const auto flows = agents_->SentFlows(0).value_or(std::vector<SentFlow>());
      return flows.size() == 1 && flows[0].udp_port != 0 && Spine(1) >= 0;
    })) << Logs();
  }
  // That packets of the queue pair towards machine i take.
  int Spine(int i) {
    const auto flows = agents_->SentFlows(1 - i).value_or(std::vector<SentFlow>());
    if (flows.size() != 1) return -1;
    return rack_->fabric().PathOf(Rack::FabricAddress(1 - i), Rack::FabricAddress(i), flows[0].udp_port).value_or(-1);
  }
  // Cuts the path of what goes to machine i; how long messages stood still.
  absl::Duration Cut(int i, absl::Duration watch) {
    const int spine = Spine(i);
    EXPECT_GE(spine, 0) << Logs();
    if (spine < 0) return absl::ZeroDuration();
    EXPECT_TRUE(rack_->fabric().SetFault(lab::LinkDirection::SpineToLeaf(spine, i), lab::Fault::Drop()).ok());
    const absl::Duration silence = LongestSilence(1, watch);
    EXPECT_TRUE(rack_->fabric().ClearFaults().ok());
    return silence;
  }
  void FinishTails() {
    auto result = run_->Finish(absl::Seconds(60));
    ASSERT_TRUE(result.ok()) << result.status() << Logs();
    EXPECT_GT(result->messages, 0u) << result->output;
  }
};

TEST_F(NakTest, UnneededOnesHarmNoWrites) { NaksUnder("ib_write_bw"); }
TEST_F(NakTest, UnneededOnesHarmNoSends) { NaksUnder("ib_send_bw"); }

// Soft-RoCE takes a NAK between two packets of a READ's answer for a broken queue pair (6.1), so none is sent to queue
// pairs that read.
TEST_F(NakTest, ReadsAreLeftToTheirTimer) {
  const uint64_t asked = Counter(0, "tail_naks");
  auto run = Perftest::Start(*rack_, {.tool = "ib_read_bw", .arguments = "-q 1 -D 40 -s 65536 -u 18"});
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  ASSERT_TRUE(Eventually([&] { return Spine(1) >= 0; })) << Logs();
  Cut(1, absl::Seconds(1));
  EXPECT_TRUE(run_->running()) << "perftest ended before the cut";
  auto result = run_->Finish(absl::Seconds(60));
  ASSERT_TRUE(result.ok()) << result.status() << Logs();
  EXPECT_EQ(Counter(0, "tail_naks"), asked);
}

// rping's client sends, where its partner reads and writes, and both compare all data with what it must be: with NAKs
// for the client, then over a path that dies.
TEST_F(NakTest, NoDataIsHarmed) {
  const std::string address = Rack::FabricAddress(1);
  auto server = rack_->machine(1).Start("exec rping -s -V -C 1200 -S 65000 -a " + address);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(Eventually([&] { return rack_->machine(1).Run("rdma resource show cm_id | grep -q LISTEN").ok(); }));
  auto client = rack_->machine(0).Start("exec rping -c -V -C 1200 -S 65000 -a " + address);
  ASSERT_TRUE(client.ok()) << client.status();
  auto qps = WaitForQueuePairs(rack_->machine(0), 1, absl::Seconds(20));
  ASSERT_TRUE(qps.ok()) << qps.status() << (*client)->output() << (*server)->output();
  const uint64_t asked = Counter(1, "tail_naks");
  auto naks = StartNaks(0, qps->front(), 2, 3'000);
  ASSERT_TRUE(Eventually([&] { return Spine(0) >= 0; })) << Logs();
  Cut(0, absl::Seconds(1));
  EXPECT_TRUE((*client)->running()) << "rping ended before the cut";
  auto ended = (*client)->Wait(absl::Seconds(120));
  ASSERT_TRUE(ended.ok()) << ended.status() << (*client)->output();
  EXPECT_EQ(ended->exit_code, 0) << ended->output << (*server)->output();
  const nlohmann::json counts = Sent(*naks);
  EXPECT_GT(counts.at("naks").get<int>(), 10);
  EXPECT_EQ(Counter(1, "tail_naks"), asked) << "its queue pair reads";
  std::printf("rping: %s, left to its timer %d times\n", counts.dump().c_str(),
              static_cast<int>(Counter(1, "tails_reads_left")));
}

TEST_F(NakTest, ALostEndIsResentAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StartTails());
  std::vector<std::string> told;
  for (int to : {1, 0, 1}) {  // data, its acknowledgements, data
    const absl::Duration stall = Cut(to, absl::Seconds(1));
    told.push_back(
        absl::StrFormat("%s %d ms", to == 1 ? "data" : "acknowledgements", absl::ToInt64Milliseconds(stall)));
    EXPECT_LT(stall, absl::Milliseconds(900)) << told.back() << Logs();
  }
  std::printf("with tail repair, longest stalls: %s\n", absl::StrJoin(told, ", ").c_str());
  EXPECT_TRUE(run_->running()) << "perftest ended before the last cut";
  FinishTails();
  const auto events = agents_->Events(0, "repair");
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_FALSE(events->empty());
}

TEST_F(NakTest, WithoutRepairALostEndWaitsForTheTimer) {
  StartAgents(Config(false));
  AwaitPaths();
  ASSERT_TRUE(setup_.ok()) << setup_;
  ASSERT_NO_FATAL_FAILURE(StartTails());
  const absl::Duration stall = Cut(1, absl::Seconds(3));
  EXPECT_GT(stall, absl::Seconds(2)) << Logs();
  EXPECT_TRUE(run_->running());
}

}  // namespace
}  // namespace cw::vm
