// SPDX-License-Identifier: Apache-2.0
// libcwverbs in perftest's own processes on real soft-RoCE, against what the switches counted. The agents' programs see
// the packets too, but put no flow anywhere: the library alone decides.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"
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

class VerbsTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmverbs";
    options.log_dir = CW_VM_LOG_DIR "/verbs";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.push_back({CW_VERBS, kLibrary});
    options.image.files.push_back({"/usr/bin/setpriv", "/usr/bin/setpriv"});
    options.image.files.push_back({CW_PLACE, "/usr/bin/cw_vm_place"});
    config::Config config = AgentConfig();
    config.steering.assign_new_flows = false;
    Begin(options, config);
  }

  void SetUp() override {
    AgentsFixture::SetUp();
    if (!setup_.ok()) return;
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

// Last: the agents do not come back.
TEST_F(VerbsTest, TheAgentsDeathInBetweenIsNotNoticed) {
  auto run = Perftest::Start(*rack_, WithLibrary("15"));
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  ASSERT_TRUE(Eventually([&] { return Owned().size() == kQueuePairs; }, absl::Seconds(60), absl::Seconds(1)))
      << Shown();
  for (int i = 0; i < 2; ++i) {
    auto killed = rack_->machine(i).Run("kill -9 $(pidof cwagentd)");
    ASSERT_TRUE(killed.ok()) << killed.status();
  }
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
