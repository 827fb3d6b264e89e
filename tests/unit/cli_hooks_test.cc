// SPDX-License-Identifier: Apache-2.0
//
// What batch systems and clusters call on each host (packaging/slurm, packaging/kubernetes), with the real cwctl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli_fake_agent.h"
#include "cli_run.h"
#include "userspace/api/server.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSlurmJob[] = CW_PACKAGING "/slurm/cwfabric-job";
constexpr char kNodeCheck[] = CW_PACKAGING "/kubernetes/cwfabric-node-check";

class Hooks : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cw-hooks-XXXXXX";
    folder_ = mkdtemp(name);
    auto server = api::Server::Start(folder_ + "/run/agent.sock", agent_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    environment_ = {
        {"CWFABRIC_SOCKET", folder_ + "/run/agent.sock"},
        {"PATH", absl::StrCat(std::filesystem::path(CWCTL_PATH).parent_path().string(), ":", getenv("PATH"))}};
  }
  ~Hooks() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  int Slurm(const std::string& context, const std::string& job) {
    std::map<std::string, std::string> environment = environment_;
    environment.insert({{"SLURMD_NODENAME", "node7"}, {"SLURM_SCRIPT_CONTEXT", context}, {"SLURM_JOB_ID", job}});
    return RunProgram(kSlurmJob, {}, environment).exit_code;
  }
  RunResult NodeCheck(const std::string& what) { return RunProgram(kNodeCheck, {what}, environment_); }

  std::string folder_;
  std::map<std::string, std::string> environment_;
  api::FakeAgent agent_;
  std::unique_ptr<api::Server> server_;
};

TEST_F(Hooks, SlurmsPrologGivesAJobsLabelAndItsEpilogTakesItAway) {
  EXPECT_EQ(Slurm("prolog_slurmd", "41"), 0);
  EXPECT_EQ(agent_.last_request, "cgroup: \"/system.slice/node7_slurmstepd.scope/job_41\" label: \"slurm 41\"");
  EXPECT_EQ(Slurm("epilog_slurmd", "41"), 0);
  EXPECT_EQ(agent_.last_request, "cgroup: \"/system.slice/node7_slurmstepd.scope/job_41\"");
  EXPECT_EQ(Slurm("prolog_slurmd", "42; reboot"), 0);
  EXPECT_EQ(Slurm("prolog_task", "43"), 0);
  EXPECT_THAT(agent_.last_request, HasSubstr("job_41")) << "neither asked for anything";
}

TEST_F(Hooks, SlurmsPrologNeverFails) {
  server_.reset();
  EXPECT_EQ(Slurm("prolog_slurmd", "44"), 0) << "no agent";
  environment_["PATH"] = "/usr/bin:/bin";
  EXPECT_EQ(Slurm("prolog_slurmd", "45"), 0) << "no cwctl";
}

TEST_F(Hooks, ANodesConditionTellsTheFirstThingToRepair) {
  EXPECT_EQ(NodeCheck("doctor").exit_code, 0);
  EXPECT_EQ(NodeCheck("agent").exit_code, 0);
  v1::Check& check = *agent_.doctor.add_checks();
  check.set_name("mtu eth0");
  check.set_result(v1::Check::RESULT_FAIL);
  check.set_seen("1500");
  check.set_todo("ip link set eth0 mtu 4500");
  const RunResult unfit = NodeCheck("doctor");
  EXPECT_EQ(unfit.exit_code, 1);
  EXPECT_THAT(unfit.out, StartsWith("mtu eth0"));
  EXPECT_EQ(std::count(unfit.out.begin(), unfit.out.end(), '\n'), 1);
  server_.reset();
  EXPECT_EQ(NodeCheck("agent").exit_code, 1);
}

TEST_F(Hooks, WithoutCwctlNobodyKnowsANodesCondition) {
  environment_["PATH"] = folder_;
  for (const char* what : {"doctor", "agent"}) {
    const RunResult unknown = NodeCheck(what);
    EXPECT_EQ(unknown.exit_code, 2) << what;
    EXPECT_THAT(unknown.out, HasSubstr("install the package cwctl"));
  }
}

// A condition without a rule would never change.
TEST_F(Hooks, NodeProblemDetectorsRulesNameWhatIsInstalled) {
  const nlohmann::json monitor =
      nlohmann::json::parse(std::ifstream(CW_PACKAGING "/kubernetes/cwfabric-node-problem.json"));
  std::map<std::string, int> rules;
  for (const auto& rule : monitor["rules"]) {
    EXPECT_EQ(rule["path"], "/usr/share/cwfabric/kubernetes/cwfabric-node-check");
    ++rules[rule["condition"]];
  }
  for (const auto& condition : monitor["conditions"]) EXPECT_EQ(rules.erase(condition["type"]), 1u);
  EXPECT_TRUE(rules.empty());
}

}  // namespace
}  // namespace cw::cli
