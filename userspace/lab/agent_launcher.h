// SPDX-License-Identifier: Apache-2.0
//
// Starts the product's agent on hosts of the lab, one process per host, in the host's namespace. The lab knows nothing
// about the agent but how to start it: the configuration's text comes from the caller.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

// What a configuration can be written from.
struct AgentHost {
  const Fabric* fabric = nullptr;
  int host = 0;
  std::string instance;  // cwlab-<lab>-h<host>: the name under which the agent pins its maps; Down removes those pins
  std::string run_dir;   // /run/cwlab/<lab>/h<host>
  std::string socket;    // run_dir/agent.sock: the API; it is there when the agent is ready
};
AgentHost DescribeAgentHost(const Fabric& fabric, int host);

struct AgentLauncher {
  std::string binary = "cwlab-agentd";                  // a path, or a name to look for beside this program and in PATH
  std::function<std::string(const AgentHost&)> config;  // the TOML text of one host's agent
  absl::Duration ready_within = absl::Seconds(10);

  // NotFound: no such binary.
  absl::StatusOr<std::string> FindBinary() const;
  // Writes run_dir/agent.toml, starts the agent with its output in run_dir/agent.log and waits for its socket. The
  // process is recorded with the lab. Internal, with the log's end, when the agent ends or does not become ready.
  absl::StatusOr<pid_t> Start(Fabric& fabric, int host) const;
  absl::Status StartAll(Fabric& fabric) const;  // all at once, then waits for each
};

}  // namespace cw::lab
