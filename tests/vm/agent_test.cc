// SPDX-License-Identifier: Apache-2.0
// The product on real RDMA: agents in both machines, perftest's own queue pairs across the fabric, checked against what
// the switches and soft-RoCE itself counted.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/lab/eventually.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

class AgentTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmagent";
    options.log_dir = CW_VM_LOG_DIR "/agent";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    config::Config config = AgentConfig();
    config.metrics.listen = "127.0.0.1:9477";
    Begin(options, config);
  }

  void SetUp() override {
    AgentsFixture::SetUp();
    if (!setup_.ok()) return;
    absl::Status paths = agents_->WaitForPaths(absl::Seconds(120));
    ASSERT_TRUE(paths.ok()) << paths << Logs();
  }

  // Starts perftest and waits until its four queue pairs are known and carry data. Asks seldom: each cwctl takes the
  // machine's only processor from perftest, which is nice, for most of a second.
  void StartPerftest(const std::string& arguments) {
    auto run = Perftest::Start(*rack_, {.arguments = arguments});
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
    bool known = Eventually(
        [&] {
          flows_ = agents_->SentFlows().value_or(std::vector<SentFlow>());
          return flows_.size() == 4 && std::all_of(flows_.begin(), flows_.end(), [](const SentFlow& flow) {
                   return flow.slot >= 0 && flow.owd_samples > 0;
                 });
        },
        absl::Seconds(60), absl::Seconds(2));
    ASSERT_TRUE(known) << agents_->CtlText(0, "qps").value_or("cwctl qps failed") << Logs();
  }

  // The spine of a queue pair's latest data packet, −1 when it was seen on none.
  int SpineOf(uint32_t remote_qpn) {
    auto spines = rack_->SpinesByQpn();
    return spines.ok() && spines->count(remote_qpn) ? spines->at(remote_qpn) : -1;
  }

  // Whether the queue pairs go by the spines that their ports are told to lead to. A flow may move between the two
  // looks.
  bool SpinesAreThoseOf(const std::vector<SentFlow>& flows) {
    return flows.size() == 4 && std::all_of(flows.begin(), flows.end(), [&](const SentFlow& flow) {
             return rack_->fabric()
                        .PathOf(Rack::FabricAddress(0), Rack::FabricAddress(1), flow.udp_port)
                        .value_or(-2) == SpineOf(flow.remote_qpn);
           });
  }

  std::vector<SentFlow> flows_;
};

TEST_F(AgentTest, ShowsQueuePairsWithProcessPathAndDelay) {
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -D 400 -s 65536 -u 18"));
  auto listed = QueuePairs(rack_->machine(0));
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::map<uint32_t, QueuePair> by_qpn;
  for (const QueuePair& pair : *listed) by_qpn[pair.lqpn] = pair;
  for (const SentFlow& flow : flows_) {
    ASSERT_TRUE(by_qpn.count(flow.local_qpn)) << flow.local_qpn << " is no queue pair of the kernel's";
    EXPECT_EQ(flow.remote_qpn, by_qpn[flow.local_qpn].rqpn);
    EXPECT_EQ(flow.process, "ib_write_bw");
    EXPECT_EQ(flow.nic, "rxe0");
    EXPECT_EQ(flow.device, "eth0");
    // Never negative by more than the clocks' error. Above: four queue pairs of 128 packets fill 170 ms of one link.
    EXPECT_GT(flow.owd_p50_ns, -flow.owd_error_ns);
    EXPECT_LT(flow.owd_p50_ns, 1.7e9);
  }
  EXPECT_TRUE(Eventually([&] { return SpinesAreThoseOf(agents_->SentFlows().value_or(std::vector<SentFlow>())); },
                         absl::Seconds(20), absl::Seconds(1)));
  // As people see and type them.
  const std::string name = absl::StrFormat("rxe0/qp0x%x", flows_[0].local_qpn);
  auto shown = agents_->CtlText(0, "qps " + name);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_TRUE(absl::StrContains(*shown, name)) << *shown;
  auto status = agents_->Ctl(0, "status");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->at("nics").at(0).at("rdma_devices"), nlohmann::json({"rxe0"}));
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  // They have ended, and cost nothing from then on.
  const auto sent = [&] {
    auto now = agents_->Ctl(0, "status");
    return now.ok() ? now->at("flows").at("transmitted").get<int>() : -1;
  };
  EXPECT_TRUE(Eventually([&] { return sent() == 0; }, absl::Seconds(30), absl::Seconds(1))) << sent();
}

// A datagram names its sender's queue pair, and the kernel whose that is, at both ends.
TEST_F(AgentTest, DatagramsHaveAnOwner) {
  auto run = Perftest::Start(*rack_, {.tool = "ib_send_bw", .arguments = "-c UD -D 400 -s 2048"});
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  const auto owned = [&](int machine, bool received) {
    auto reply = agents_->Ctl(machine, "qps --received");
    if (!reply.ok()) return false;
    const auto& flows = reply->at("flows");
    return std::any_of(flows.begin(), flows.end(), [&](const nlohmann::json& flow) {
      return flow.at("transport") == "UD" && flow.at("received") == received && flow.at("process") == "ib_send_bw" &&
             flow.at("local_qpn").get<uint32_t>() > 1 && flow.at("nic") == "rxe0";
    });
  };
  const auto shown = [&](int machine) { return agents_->CtlText(machine, "qps --received").value_or("no answer"); };
  EXPECT_TRUE(Eventually([&] { return owned(0, false); }, absl::Seconds(60), absl::Seconds(1))) << shown(0) << Logs();
  EXPECT_TRUE(Eventually([&] { return owned(1, true); }, absl::Seconds(60), absl::Seconds(1))) << shown(1) << Logs();
  // A lost datagram is never sent again: perftest's receiver would wait for it. What ends leaves the tables.
  run_.reset();
  const auto sent = [&] {
    auto now = agents_->Ctl(0, "status");
    return now.ok() ? now->at("flows").at("transmitted").get<int>() : -1;
  };
  EXPECT_TRUE(Eventually([&] { return sent() == 0; }, absl::Seconds(60), absl::Seconds(1))) << shown(0);
}

// By an hour and by ten years, forwards and back: fleet time, probes and queue pairs know the monotonic clock alone.
TEST_F(AgentTest, AWallClockThatIsSetChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -D 400 -s 65536 -u 18"));
  nlohmann::json before;
  ASSERT_TRUE(Eventually([&] {
    before = agents_->Ctl(0, "clock tracking").value_or(nlohmann::json::object());
    return before.value("state", "") == "synchronised";
  }));
  int64_t set_by_s = 0;
  for (const int64_t to_s : {3600, -3600, 315'360'000, 0}) {
    auto set = rack_->machine(0).Run(absl::StrCat("date -s @$(( $(date +%s) + ", to_s - set_by_s, " ))"));
    ASSERT_TRUE(set.ok()) << set.status();
    set_by_s = to_s;
    lab::Hold(absl::Seconds(1));
    auto tracking = agents_->Ctl(0, "clock tracking");
    ASSERT_TRUE(tracking.ok()) << tracking.status();
    EXPECT_EQ(tracking->at("state"), "synchronised") << tracking->dump();
    EXPECT_EQ(tracking->at("timeline"), before.at("timeline"));
    EXPECT_EQ(tracking->at("epoch"), before.at("epoch"));
    auto flows = agents_->SentFlows();
    ASSERT_TRUE(flows.ok()) << flows.status();
    EXPECT_EQ(flows->size(), flows_.size());
  }
  EXPECT_TRUE(run_->running()) << "perftest ended before the clock was set back";
  auto paths = agents_->WaitForPaths(absl::Seconds(60));
  EXPECT_TRUE(paths.ok()) << paths << Logs();
  auto counters = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ(counters->at("retry_exceeded_err"), 0u);
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
}

TEST_F(AgentTest, ShowsTheDevicesOwnCountersAsMetrics) {
  const auto shown = [&](const std::string& counter) {
    auto value = rack_->machine(0).Run(
        absl::StrCat("ip link set lo up; wget -q -O - http://127.0.0.1:9477/metrics | sed -n 's/^cwfabric_rdma_",
                     counter, "_total{device=\"rxe0\",port=\"1\"} //p'"));
    EXPECT_TRUE(value.ok()) << value.status();
    uint64_t number = 0;
    EXPECT_TRUE(value.ok() && absl::SimpleAtoi(*value, &number)) << counter << ": " << value.value_or("");
    return number;
  };
  const uint64_t sent = shown("sent_pkts");
  auto before = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_LE(sent, before->at("sent_pkts"));
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -D 400 -s 65536 -u 18"));
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status() << Logs();
  auto after = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT(after->at("sent_pkts"), before->at("sent_pkts"));
  EXPECT_GE(shown("sent_pkts"), after->at("sent_pkts"));
}

// One message at a time leaves moments with nothing in flight, and a move waits for one: not one sequence error.
TEST_F(AgentTest, SteersALiveQueuePairToAnotherSpineWithoutAnError) {
  auto sender_before = RxeCounters(rack_->machine(0)), receiver_before = RxeCounters(rack_->machine(1));
  ASSERT_TRUE(sender_before.ok() && receiver_before.ok()) << sender_before.status() << receiver_before.status();
  auto paths = agents_->LivePathsBySpine(0);
  ASSERT_TRUE(paths.ok()) << paths.status();
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -t 1 -D 400 -s 65536 -u 20"));
  for (const SentFlow& flow : flows_) {
    const int from = SpineOf(flow.remote_qpn), to = (from + 1) % rack_->fabric().spec().spines;
    ASSERT_TRUE(paths->count(to)) << "no live path over spine " << to;
    auto set = agents_->Ctl(0, absl::StrCat("steer set ", flow.id, " --path ", paths->at(to)));
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_TRUE(Eventually([&] { return SpineOf(flow.remote_qpn) == to || !run_->running(); }));
    EXPECT_EQ(SpineOf(flow.remote_qpn), to) << "from spine " << from << ": " << set->dump() << Logs();
  }
  EXPECT_TRUE(run_->running()) << "perftest ended before every queue pair was moved";
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  auto sender = RxeCounters(rack_->machine(0)), receiver = RxeCounters(rack_->machine(1));
  ASSERT_TRUE(sender.ok() && receiver.ok()) << sender.status() << receiver.status();
  EXPECT_EQ(sender->at("rcvd_seq_err"), sender_before->at("rcvd_seq_err"));
  EXPECT_EQ(receiver->at("out_of_seq_request"), receiver_before->at("out_of_seq_request"));
}

// perftest's own depth: 128 packets in flight, so that a moment without any need not come. A move without --force waits
// for one and says so; --force makes it with the next packet, and what was overtaken is sent again.
TEST_F(AgentTest, MovesBusyQueuePairsAndPerftestFinishes) {
  auto before = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(before.ok()) << before.status();
  auto paths = agents_->LivePathsBySpine(0);
  ASSERT_TRUE(paths.ok()) << paths.status();
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -D 400 -s 65536 -u 18"));
  const int spines = rack_->fabric().spec().spines;
  ASSERT_EQ(paths->size(), static_cast<size_t>(spines));
  // Asks for a move to the next spine and gives the reply. An emulated processor may stall for so long that a path is
  // taken for dead, and no flow is put there then: ask again.
  const auto ask = [&](const SentFlow& flow, int to, const char* option) {
    nlohmann::json reply;
    Eventually([&] {
      auto set =
          agents_->Ctl(0, absl::StrFormat("steer set rxe0/qp0x%x --path %d %s", flow.local_qpn, paths->at(to), option));
      if (set.ok()) reply = *set;
      return set.ok() || !run_->running();
    });
    return reply;
  };

  const int forced_to = (SpineOf(flows_[0].remote_qpn) + 1) % spines;
  bool moved = false;
  while (!moved && run_->running()) {
    const nlohmann::json reply = ask(flows_[0], forced_to, "--force");
    ASSERT_FALSE(reply.is_null()) << Logs();
    EXPECT_FALSE(reply.at("pending")) << reply.dump();
    moved = Eventually([&] { return SpineOf(flows_[0].remote_qpn) == forced_to; }, absl::Seconds(2));
  }
  EXPECT_TRUE(moved) << "not on spine " << forced_to << Logs();

  const int to = (SpineOf(flows_[1].remote_qpn) + 1) % spines;
  const nlohmann::json reply = ask(flows_[1], to, "");
  ASSERT_FALSE(reply.is_null()) << Logs();
  EXPECT_TRUE(reply.at("pending")) << reply.dump();
  EXPECT_TRUE(run_->running()) << "perftest ended before every queue pair was asked to move";
  const bool came = Eventually([&] { return SpineOf(flows_[1].remote_qpn) == to; }, absl::Seconds(3));
  auto shown = agents_->Ctl(0, "qps " + flows_[1].id);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_NE(shown->at("flows").at(0).at("last_reason"), "forced") << shown->dump();
  std::printf("without --force it %s within 3 s\n%s", came ? "was moved" : "was not moved",
              agents_->CtlText(0, "steer show").value_or("steer show failed").c_str());

  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  auto after = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(after.ok()) << after.status();
  for (const char* broken : {"retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"}) {
    EXPECT_EQ(after->at(broken), before->at(broken)) << broken;
  }
  std::printf("PSN sequence errors: %d\n", static_cast<int>(after->at("rcvd_seq_err") - before->at("rcvd_seq_err")));
}

TEST_F(AgentTest, LeavesASilentlyDeadSpineAndPerftestFinishes) {
  auto before = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -D 400 -s 65536 -u 18"));
  const int dead = SpineOf(flows_[0].remote_qpn);
  ASSERT_GE(dead, 0);
  const lab::LinkDirection link = lab::LinkDirection::SpineToLeaf(dead, 1);
  ASSERT_TRUE(rack_->fabric().SetFault(link, lab::Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] {
    auto spines = rack_->SpinesByQpn();
    return spines.ok() && std::all_of(flows_.begin(), flows_.end(),
                                      [&](const SentFlow& flow) { return spines->at(flow.remote_qpn) != dead; });
  })) << Logs();
  EXPECT_TRUE(run_->running()) << "perftest ended before the queue pairs had left";

  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  EXPECT_GT(rack_->fabric().Link(link)->fault_drops, 0u) << "the fault hit nothing";
  auto after = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->at("retry_exceeded_err"), before->at("retry_exceeded_err"));

  auto events = agents_->Events(0, "path");
  ASSERT_TRUE(events.ok()) << events.status();
  bool named = std::any_of(events->begin(), events->end(), [&](const nlohmann::json& event) {
    return event.at("slot") == flows_[0].slot && absl::StrContains(event.at("text").get<std::string>(), " is dead");
  });
  EXPECT_TRUE(named) << agents_->CtlText(0, "events --last 0").value_or("cwctl events failed");
}

// Power fails, for both hosts and then for one: agents, programs and all they knew are gone, counters and clocks begin
// anew, and nothing that a peer remembers keeps the paths away.
TEST_F(AgentTest, HostsThatLosePowerComeBackByThemselves) {
  absl::Status back = rack_->Restart({0, 1});
  ASSERT_TRUE(back.ok()) << back;
  StartAgents(AgentConfig());
  ASSERT_TRUE(setup_.ok()) << setup_;
  back = agents_->WaitForPaths(absl::Seconds(120));
  ASSERT_TRUE(back.ok()) << back << Logs();

  back = rack_->Restart({1});
  if (back.ok()) back = agents_->StartAgain(1);
  if (back.ok()) back = agents_->WaitForPaths(absl::Seconds(120));
  ASSERT_TRUE(back.ok()) << back << Logs();
  EXPECT_TRUE(agents_->agent(0).running()) << Logs();
}

// Last: the machines' NIC becomes the member of a bond, which RDMA and the agent then have. A member that loses its
// link for a moment costs queue pairs nothing but that moment.
TEST_F(AgentTest, ABondIsSteeredLikeItsMember) {
  agents_.reset();
  for (int i = 0; i < 2; ++i) {
    auto made = rack_->machine(i).Run(absl::StrCat(
        "set -e; cwagentd --detach; rdma link delete rxe0; mtu=$(cat /sys/class/net/eth0/mtu); ",
        "ip link add bond0 type bond mode active-backup miimon 50; ip addr flush dev eth0; ip link set eth0 down; ",
        "ip link set eth0 master bond0; ip link set bond0 mtu $mtu up; ip addr add ", Rack::FabricAddress(i),
        "/24 dev bond0; ip route add default via 10.0.", i, ".1 dev bond0; rdma link add rxe0 type rxe netdev bond0; ",
        "until ping -c 1 -W 1 10.0.", i, ".1 >/dev/null; do sleep 0.1; done"));
    ASSERT_TRUE(made.ok()) << made.status();
  }
  config::Config config = AgentConfig();
  config.nics = {{.name = "bond0"}};
  StartAgents(config);
  ASSERT_TRUE(setup_.ok()) << setup_;
  absl::Status up = agents_->WaitForPaths(absl::Seconds(120));
  ASSERT_TRUE(up.ok()) << up << Logs();
  auto status = agents_->Ctl(0, "status");
  ASSERT_TRUE(status.ok()) << status.status();
  std::printf("on a bond: %s\n", status->at("nics").at(0).dump().c_str());

  auto paths = agents_->LivePathsBySpine(0);
  ASSERT_TRUE(paths.ok()) << paths.status();
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -t 1 -D 400 -s 65536 -u 18"));
  EXPECT_EQ(flows_[0].device, "bond0");
  const int to = (SpineOf(flows_[0].remote_qpn) + 1) % rack_->fabric().spec().spines;
  ASSERT_TRUE(paths->count(to)) << "no live path over spine " << to;
  auto set = agents_->Ctl(0, absl::StrCat("steer set ", flows_[0].id, " --path ", paths->at(to)));
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_TRUE(Eventually([&] { return SpineOf(flows_[0].remote_qpn) == to; })) << set->dump() << Logs();
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();

  // Between two runs: soft-RoCE ends a queue pair whose packet a bond without a member drops, agents or not.
  auto flapped = rack_->machine(0).Run("ip link set eth0 down; sleep 0.5; ip link set eth0 up");
  ASSERT_TRUE(flapped.ok()) << flapped.status();
  auto down = [&] {
    auto events = agents_->CtlText(0, "events --type nic");
    return events.ok() && events->find("NIC bond0: its link is down") != std::string::npos;
  };
  EXPECT_TRUE(Eventually(down)) << Logs();
  up = agents_->WaitForPaths(absl::Seconds(60));
  EXPECT_TRUE(up.ok()) << up << Logs();
  ASSERT_NO_FATAL_FAILURE(StartPerftest("-q 4 -t 1 -D 5 -s 65536 -u 18"));
  result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  auto after = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->at("retry_exceeded_err"), 0u);
}

}  // namespace
}  // namespace cw::vm
