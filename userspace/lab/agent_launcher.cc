// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/agent_launcher.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogTail = 2000;

std::string LogTail(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() > kLogTail ? all.substr(all.size() - kLogTail) : all;
}

bool IsProgram(const fs::path& path) { return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path); }

absl::StatusOr<ProcessId> SpawnAgent(const AgentLauncher& launcher, Fabric& fabric, const AgentHost& host) {
  absl::StatusOr<std::string> binary = launcher.FindBinary();
  if (!binary.ok()) return binary.status();
  const std::string config = host.run_dir + "/agent.toml";
  std::ofstream file(config);
  file << launcher.config(host);
  file.close();
  if (!file) return absl::InternalError(absl::StrCat("cannot write ", config));
  std::error_code ignored;
  fs::remove(host.socket, ignored);  // an old one would look like a ready agent
  ProcessId process;
  absl::Status status = RunInNetns(fabric.HostNetns(host.host), [&] {
    absl::StatusOr<ProcessId> started = StartProcess({*binary, "--config", config}, host.run_dir + "/agent.log");
    if (started.ok()) process = *started;
    return started.status();
  });
  if (status.ok()) status = fabric.RecordProcess(process.pid, absl::StrCat("agent h", host.host));
  if (!status.ok()) return status;
  return process;
}

absl::Status WaitUntilReady(const AgentLauncher& launcher, const AgentHost& host, const ProcessId& process) {
  const absl::Time deadline = absl::Now() + launcher.ready_within;
  while (!fs::exists(host.socket)) {
    const bool alive = IsAlive(process);
    if (!alive || absl::Now() > deadline) {
      return absl::InternalError(absl::StrCat("the agent of h", host.host, alive ? " is not ready" : " ended", ": ",
                                              LogTail(host.run_dir + "/agent.log")));
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  return absl::OkStatus();
}

}  // namespace

AgentHost DescribeAgentHost(const Fabric& fabric, int host) {
  const std::string run_dir = fabric.HostRunDir(host);
  return {&fabric, host, HostName(fabric.spec().lab, host), run_dir, run_dir + "/agent.sock"};
}

absl::StatusOr<std::string> AgentLauncher::FindBinary() const {
  if (binary.find('/') != std::string::npos) {
    if (IsProgram(binary)) return binary;
    return absl::NotFoundError(absl::StrCat("no program ", binary));
  }
  std::error_code error;
  std::vector<fs::path> folders = {fs::read_symlink("/proc/self/exe", error).parent_path()};
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path ? path : "", ':')) folders.emplace_back(std::string(folder));
  for (const fs::path& folder : folders) {
    if (IsProgram(folder / binary)) return (folder / binary).string();
  }
  return absl::NotFoundError(absl::StrCat(binary, " is neither beside this program nor in PATH"));
}

absl::StatusOr<pid_t> AgentLauncher::Start(Fabric& fabric, int host) const {
  const AgentHost description = DescribeAgentHost(fabric, host);
  absl::StatusOr<ProcessId> process = SpawnAgent(*this, fabric, description);
  if (!process.ok()) return process.status();
  if (absl::Status status = WaitUntilReady(*this, description, *process); !status.ok()) return status;
  return process->pid;
}

absl::Status AgentLauncher::StartAll(Fabric& fabric) const {
  std::vector<ProcessId> processes;
  for (int h = 0; h < fabric.hosts(); ++h) {
    absl::StatusOr<ProcessId> process = SpawnAgent(*this, fabric, DescribeAgentHost(fabric, h));
    if (!process.ok()) return process.status();
    processes.push_back(*process);
  }
  absl::Status status;
  for (int h = 0; h < fabric.hosts(); ++h) {
    status.Update(WaitUntilReady(*this, DescribeAgentHost(fabric, h), processes[h]));
  }
  return status;
}

}  // namespace cw::lab
