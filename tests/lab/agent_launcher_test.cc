// SPDX-License-Identifier: Apache-2.0
//
// Starting agents on the lab's hosts, with a shell script in the agent's place.
#include "userspace/lab/agent_launcher.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/lab/fabric_rig.h"
#include "userspace/lab/fabric_process.h"

namespace cw::lab {
namespace {

// A program that gets "--config FILE" and finds its socket's path in that file.
std::string Script(const Fabric& fabric, const std::string& body) {
  const std::string path = fabric.RunDir() + "/agent.sh";
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

AgentLauncher Launcher(const std::string& binary) {
  return {.binary = binary, .config = [](const AgentHost& host) { return host.socket + "\n"; }};
}

TEST(AgentLauncher, AgentsRunInTheirHostsAndGoWithTheLab) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  const AgentLauncher launcher =
      Launcher(Script(*fabric, "ip -o -4 addr show dev eth0\ntouch $(cat $2)\nexec sleep 1000"));
  std::vector<ProcessId> agents;
  for (int h = 0; h < fabric->hosts(); ++h) {
    auto pid = launcher.Start(*fabric, h);
    ASSERT_TRUE(pid.ok()) << pid.status();
    agents.push_back({*pid, StartTicks(*pid)});
    EXPECT_TRUE(IsAlive(agents.back()));
    std::ifstream log(fabric->HostRunDir(h) + "/agent.log");
    const std::string text((std::istreambuf_iterator<char>(log)), {});
    EXPECT_THAT(text, testing::HasSubstr(fabric->HostAddr(h)));
  }
  EXPECT_EQ(DescribeAgentHost(*fabric, 1).instance, absl::StrCat("cwlab-", fabric->spec().lab, "-h1"));
  fabric.reset();
  for (const ProcessId& agent : agents) EXPECT_FALSE(IsAlive(agent));
}

TEST(AgentLauncher, AFailingAgentIsReportedInItsOwnWords) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  const absl::Status status = Launcher(Script(*fabric, "echo no such NIC; exit 3")).StartAll(*fabric);
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no such NIC"));
  EXPECT_TRUE(absl::IsNotFound(Launcher("no-such-program-anywhere").Start(*fabric, 0).status()));
}

}  // namespace
}  // namespace cw::lab
