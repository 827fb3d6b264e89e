// SPDX-License-Identifier: Apache-2.0
// cwagentd and cwctl in both machines of a rack.
//
//   RackOptions options;
//   options.image.files = AgentFiles(cwagentd, cwctl);
//   auto rack = Rack::Up(options);
//   auto agents = Agents::Start(**rack, {});
//   auto qps = (*agents)->Ctl(0, "qps");     // JSON of `cwctl --json qps` in machine 0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/vm/rack.h"
#include "userspace/config/config.h"

namespace cw::vm {

// Where the machines expect the two programs.
std::vector<std::pair<std::string, std::string>> AgentFiles(const std::string& cwagentd, const std::string& cwctl);

// The configuration of both agents: eth0, each other as peers, a shared secret. 10 ms probe rounds, because an emulated
// processor is late by milliseconds.
config::Config AgentConfig();

// A queue pair of one machine towards the other, as `cwctl qps` tells it.
struct SentFlow {
  std::string id, process;
  std::string nic, device;  // RDMA and network device
  uint32_t local_qpn = 0, remote_qpn = 0;
  int slot = -1;
  uint16_t udp_port = 0;
  uint64_t owd_samples = 0;
  double owd_p50_ns = 0, owd_error_ns = 0;
  uint64_t nak_seq = 0;  // PSN sequence errors that the peer reported
};

// Destruction ends the agents; their programs stay attached, as in production.
class Agents {
 public:
  // Starts both and returns when both answer.
  static absl::StatusOr<std::unique_ptr<Agents>> Start(Rack& rack, const config::Config& config) {
    return Start(rack, std::array{config, config});
  }
  static absl::StatusOr<std::unique_ptr<Agents>> Start(Rack& rack, const std::array<config::Config, 2>& configs);

  // In a machine that was restarted (Rack::Restart), with the configuration that it had.
  absl::Status StartAgain(int i);
  // Ends machine i's agent and starts it with another configuration.
  absl::Status StartAgain(int i, const config::Config& config);

  // `cwctl --json ARGUMENTS` in machine i; an exit code other than 0 is an error that tells the output.
  absl::StatusOr<nlohmann::json> Ctl(int i, const std::string& arguments);
  // Without --json, as a person sees it.
  absl::StatusOr<std::string> CtlText(int i, const std::string& arguments);

  // `cwctl --json events` of machine i, oldest first; type "" is all types.
  absl::StatusOr<std::vector<nlohmann::json>> Events(int i, const std::string& type);

  // Machine i's queue pairs of a living process, by local QPN.
  absl::StatusOr<std::vector<SentFlow>> SentFlows(int i = 0);
  // Until each agent has a live path over every spine.
  absl::Status WaitForPaths(absl::Duration timeout);
  // Of machine i's live paths one per spine, by the spine that its leaf's ECMP takes for them.
  absl::StatusOr<std::map<int, int>> LivePathsBySpine(int i);

  Command& agent(int i) { return *agents_[static_cast<size_t>(i)]; }  // its output is its log

 private:
  Agents(Rack& rack, const std::array<config::Config, 2>& configs) : rack_(rack), configs_(configs) {}
  absl::Status Launch(int i);
  absl::Status AwaitAnswer(int i);

  Rack& rack_;
  std::array<config::Config, 2> configs_;
  std::array<std::unique_ptr<Command>, 2> agents_;
};

}  // namespace cw::vm
