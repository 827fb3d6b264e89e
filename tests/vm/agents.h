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
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/vm/rack.h"
#include "userspace/config/config.h"

namespace cw::vm {

// Where the machines expect the two programs.
std::vector<std::pair<std::string, std::string>> AgentFiles(const std::string& cwagentd, const std::string& cwctl);

// The configuration of both agents: eth0, each other as peers, a shared secret. 10 ms probe rounds, because an emulated
// processor is late by milliseconds.
config::Config AgentConfig();

// Destruction ends the agents; their programs stay attached, as in production.
class Agents {
 public:
  // Starts both and returns when both answer.
  static absl::StatusOr<std::unique_ptr<Agents>> Start(Rack& rack, const config::Config& config);

  // `cwctl --json ARGUMENTS` in machine i; an exit code other than 0 is an error that tells the output.
  absl::StatusOr<nlohmann::json> Ctl(int i, const std::string& arguments);
  // Without --json, as a person sees it.
  absl::StatusOr<std::string> CtlText(int i, const std::string& arguments);

  Command& agent(int i) { return *agents_[static_cast<size_t>(i)]; }  // its output is its log

 private:
  explicit Agents(Rack& rack) : rack_(rack) {}

  Rack& rack_;
  std::array<std::unique_ptr<Command>, 2> agents_;
};

}  // namespace cw::vm
