// SPDX-License-Identifier: Apache-2.0
// libcwverbs in perftest's own processes on real soft-RoCE, against what the switches counted. The agents' programs see
// the packets too, but put no flow anywhere: the library alone decides.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"
#include "tests/vm/host_command.h"
#include "userspace/inproc/cw_inproc.h"

namespace cw::vm {
namespace {

constexpr int kQueuePairs = 8;
constexpr char kLibrary[] = "/usr/lib/libcwverbs.so";

// The agent of a machine with one emulated processor takes longer to answer than the library waits by itself.
PerftestOptions WithLibrary(const std::string& seconds, const std::string& as = "") {
  return {
      .tool = absl::StrCat(as, "env LD_PRELOAD=", kLibrary, " CWVERBS_DEADLINE_MS=1000 CWVERBS_LABEL=job7 ib_write_bw"),
      .arguments = absl::StrCat("-q ", kQueuePairs, " -t 4 -s 65536 -u 20 -D ", seconds)};
}

// UCX knows where a destination stands in a received header by what mlx5 says of the packet; soft-RoCE does not say it,
// so that UCX drops what its UD queue pairs receive. Its 30 s without an acknowledgement may pass on emulated
// processors.
std::string UcxSettings(const std::string& before) {
  std::string settings;
  for (const char* setting : {"LD_PRELOAD=/usr/lib/libcwverbs.so", "CWVERBS_DEADLINE_MS=1000", "CWVERBS_LABEL=job7",
                              "UCX_TLS=rc_verbs,ud_verbs,self", "UCX_NET_DEVICES=rxe0:1",
                              "UCX_UD_VERBS_ETH_DGID_CHECK=n", "UCX_UD_VERBS_TIMEOUT=5m"})
    absl::StrAppend(&settings, before, setting, before == "-x " ? " " : "; ");
  return settings;
}

class VerbsTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmverbs";
    options.log_dir = CW_VM_LOG_DIR "/verbs";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.push_back({CW_VERBS_LIB, kLibrary});
    options.image.files.push_back({"/usr/bin/setpriv", "/usr/bin/setpriv"});
    options.image.files.push_back({CW_PLACE, "/usr/bin/cw_vm_place"});
    const std::string archive = CW_VM_LOG_DIR "/mpi.cpio";
    if (RunHostCommand({CW_VM_SOURCE_DIR "/mkmpi.sh", archive}) == 0) options.image.archives.push_back(archive);
    has_mpi_ = !options.image.archives.empty();
    Begin(options, Config());
    std::remove(archive.c_str());
  }

  static config::Config Config() {
    config::Config config = AgentConfig();
    config.steering.assign_new_flows = false;
    // Neither may it leave a path: an emulated processor that stands still makes one look dead.
    config.steering.allow.failover = config.steering.allow.loss = config::AllowSetting::kOff;
    return config;
  }

  void SetUp() override {
    AgentsFixture::SetUp();
    if (!setup_.ok()) return;
    if (!agents_->agent(0).running()) StartAgents(Config());  // a test before has killed them
    ASSERT_TRUE(setup_.ok()) << setup_;
    absl::Status paths;  // an agent on an emulated processor may miss one answer
    Eventually([&] { return (paths = agents_->WaitForPaths(absl::Seconds(60))).ok(); }, absl::Seconds(120));
    ASSERT_TRUE(paths.ok()) << paths << Logs();
  }

  // Queue pairs of living processes whose library counts, as the agent of machine 0 shows them.
  std::vector<nlohmann::json> Owned() {
    std::vector<nlohmann::json> owned;
    auto reply = agents_->Ctl(0, "qps");
    if (!reply.ok()) return owned;
    for (const auto& flow : reply->at("flows")) {
      if (!flow.at("received").get<bool>() && flow.contains("owner") && !flow.at("owner").is_null())
        owned.push_back(flow);
    }
    return owned;
  }

  void KillAgents() {
    for (int i = 0; i < 2; ++i) {
      auto killed = rack_->machine(i).Run("kill -9 $(pidof cwagentd)");
      ASSERT_TRUE(killed.ok()) << killed.status();
    }
  }

  // `client`, under the library, has a placed queue pair that carries messages; the agents are killed; it ends well.
  void RunsOnWithoutAgents(Command& client, const std::string& process) {
    std::vector<nlohmann::json> owned;
    const bool seen = Eventually(
        [&] {
          owned = Owned();
          // UCX under MPI connects a rank with itself, too.
          std::erase_if(owned, [](const auto& flow) { return flow.at("remote_address") != Rack::FabricAddress(1); });
          return !client.running() || (!owned.empty() && owned[0].at("owner").at("messages").get<uint64_t>() > 0);
        },
        absl::Seconds(120), absl::Seconds(1));
    ASSERT_TRUE(seen && !owned.empty()) << client.output() << Shown() << Logs();
    for (const nlohmann::json& flow : owned) {
      EXPECT_TRUE(flow.at("owner").at("placed").get<bool>()) << flow.dump();
      EXPECT_EQ(flow.at("process"), process);
      EXPECT_EQ(flow.at("label"), "job7");
    }
    KillAgents();
    EXPECT_TRUE(client.running()) << process << " ended before the agents did: " << client.output();
    auto result = client.Wait(absl::Seconds(120));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 0) << result->output;
    EXPECT_EQ(result->output.find("ERROR"), std::string::npos) << result->output;
  }

  inline static bool has_mpi_ = false;

  std::string Shown() { return agents_->CtlText(0, "qps --json").value_or("cwctl qps failed"); }
};

TEST_F(VerbsTest, EightQueuePairsAreSpreadTwoPerSpine) {
  auto run = Perftest::Start(*rack_, WithLibrary("60"));
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  std::vector<nlohmann::json> owned;
  const bool counted = Eventually(
      [&] {
        owned = Owned();
        return owned.size() == kQueuePairs && std::all_of(owned.begin(), owned.end(), [](const nlohmann::json& flow) {
                 return flow.at("owner").at("messages").get<uint64_t>() > 0 &&
                        flow.at("owner").at("completion_samples").get<uint64_t>() > 0;
               });
      },
      absl::Seconds(60), absl::Seconds(2));
  ASSERT_TRUE(counted) << Shown() << Logs();
  for (const nlohmann::json& flow : owned) {
    const nlohmann::json& owner = flow.at("owner");
    EXPECT_TRUE(owner.at("placed").get<bool>()) << flow.dump();
    EXPECT_EQ(owner.at("bytes").get<uint64_t>(), owner.at("messages").get<uint64_t>() * 65536);
    EXPECT_GT(owner.at("completion_p50_ns").get<double>(), 0);
    EXPECT_GE(owner.at("completion_max_ns").get<double>() * 1.13, owner.at("completion_p50_ns").get<double>());
    EXPECT_EQ(flow.at("process"), "ib_write_bw");
    EXPECT_EQ(flow.at("label"), "job7");
  }
  std::map<int, int> per_spine;
  auto spines = rack_->SpinesByQpn();
  ASSERT_TRUE(spines.ok()) << spines.status();
  for (const nlohmann::json& flow : owned) {
    const uint32_t qpn = flow.at("remote_qpn");
    ASSERT_TRUE(spines->count(qpn)) << "the switches saw no packet to " << qpn;
    ++per_spine[spines->at(qpn)];
  }
  for (int spine = 0; spine < rack_->fabric().spec().spines; ++spine) EXPECT_EQ(per_spine[spine], 2) << Shown();
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  EXPECT_TRUE(Eventually([&] { return Owned().empty(); })) << "queue pairs of a process that ended: " << Shown();
}

// Without privilege a queue pair is placed only if RDMA netlink says that it is the asking process's.
TEST_F(VerbsTest, APlainUsersQueuePairsArePlacedByNetlinksWord) {
  for (int i = 0; i < 2; ++i) {
    auto opened = rack_->machine(i).Run("chmod 666 /dev/infiniband/*");
    ASSERT_TRUE(opened.ok()) << opened.status();
  }
  auto run = Perftest::Start(*rack_, WithLibrary("60", "setpriv --reuid 1000 --regid 1000 --clear-groups "));
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  std::vector<nlohmann::json> owned;
  ASSERT_TRUE(Eventually(
      [&] {
        owned = Owned();
        return owned.size() == kQueuePairs;
      },
      absl::Seconds(60), absl::Seconds(1)))
      << Shown();
  for (const nlohmann::json& flow : owned) EXPECT_TRUE(flow.at("owner").at("placed").get<bool>()) << flow.dump();
  // Nor does root get a path for another process's; nobody but root for one that netlink does not know.
  const std::string ask = absl::StrCat("cw_vm_place ", Rack::FabricAddress(0), " ", Rack::FabricAddress(1), " ");
  const auto verdict = [&](const std::string& as, uint32_t qpn) {
    return rack_->machine(0).Run(absl::StrCat(as, ask, qpn)).value_or("no answer");
  };
  const std::string user = "setpriv --reuid 1000 --regid 1000 --clear-groups ";
  EXPECT_EQ(verdict("", owned[0].at("local_qpn")), absl::StrCat(CW_INPROC_NOT_YOURS, "\n"));
  EXPECT_EQ(verdict(user, 0x7fff), absl::StrCat(CW_INPROC_NOT_YOURS, "\n"));
  EXPECT_EQ(verdict("", 0x7fff), absl::StrCat(CW_INPROC_PLACED, "\n"));
  EXPECT_TRUE(run_->running());
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
}

TEST_F(VerbsTest, UcxRunsUnchangedAlsoWhenTheAgentsDie) {
  ASSERT_TRUE(has_mpi_) << "packages are missing: packaging/deps/vm.txt";
  const std::string line = absl::StrCat("mkdir -p /dev/shm; renice -n 19 -p $$; ", UcxSettings("export "),
                                        "exec ucx_perftest -t tag_bw -n 3000 -s 65536 ");
  auto server = rack_->machine(1).Start(line);
  ASSERT_TRUE(server.ok()) << server.status();
  // It says so in a pipe only when it ends; its port is 13337.
  auto listens = rack_->machine(1).Run(
      "for i in $(seq 200); do grep -q ':3419 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1");
  ASSERT_TRUE(listens.ok()) << (*server)->output();
  auto client = rack_->machine(0).Start(line + Rack::MgmtAddress(1));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_NO_FATAL_FAILURE(RunsOnWithoutAgents(**client, "ucx_perftest"));
  EXPECT_NE((*client)->output().find("Final:"), std::string::npos) << (*client)->output();
  EXPECT_NE((*client)->output().find(" 3000 "), std::string::npos) << (*client)->output();
  auto served = (*server)->Wait(absl::Seconds(20));
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->exit_code, 0) << served->output;
}

// NetPIPE's ranks on both machines, over UCX.
TEST_F(VerbsTest, OpenMpiRunsUnchangedAlsoWhenTheAgentsDie) {
  ASSERT_TRUE(has_mpi_) << "packages are missing: packaging/deps/vm.txt";
  auto shell = rack_->machine(1).Start("mkdir -p /dev/shm; renice -n 19 -p $$; exec nc -ll -p 2222 -e /bin/sh");
  ASSERT_TRUE(shell.ok()) << shell.status();
  auto client = rack_->machine(0).Start(absl::StrCat("for i in $(seq 50); do nc ", Rack::MgmtAddress(1),
                                                     " 2222 </dev/null && break; sleep 0.1; done; mkdir -p /dev/shm; ",
                                                     "renice -n 19 -p $$; exec cw_mpi ", Rack::MgmtAddress(0), " ",
                                                     Rack::MgmtAddress(1), " ", UcxSettings("-x "),
                                                     "NPopenmpi -l 65536 -u 65536 -n 200 -p 0"));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_NO_FATAL_FAILURE(RunsOnWithoutAgents(**client, "NPopenmpi"));
  EXPECT_NE((*client)->output().find("200 times -->"), std::string::npos) << (*client)->output();
  EXPECT_NE((*client)->output().find(" Mbps in "), std::string::npos) << (*client)->output();
}

// Last: the agents do not come back.
TEST_F(VerbsTest, TheAgentsDeathInBetweenIsNotNoticed) {
  auto run = Perftest::Start(*rack_, WithLibrary("15"));
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  ASSERT_TRUE(Eventually([&] { return Owned().size() == kQueuePairs; }, absl::Seconds(60), absl::Seconds(1)))
      << Shown();
  ASSERT_NO_FATAL_FAILURE(KillAgents());
  auto result = run_->Wait(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output;
  // And a process that starts without any agent.
  auto again = Perftest::Start(*rack_, WithLibrary("5"));
  ASSERT_TRUE(again.ok()) << again.status();
  result = (*again)->Wait(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output;
}

}  // namespace
}  // namespace cw::vm
