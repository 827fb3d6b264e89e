// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/agents.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::vm {
namespace {

constexpr char kConfigFile[] = "/etc/cwfabric/cwagentd.toml";
constexpr char kSecretFile[] = "/etc/cwfabric/secret";

}  // namespace

std::vector<std::pair<std::string, std::string>> AgentFiles(const std::string& cwagentd, const std::string& cwctl) {
  return {{cwagentd, "/usr/bin/cwagentd"}, {cwctl, "/usr/bin/cwctl"}};
}

config::Config AgentConfig() {
  config::Config config;
  config.mode = config::Mode::kOptimize;
  config.nics = {{.name = "eth0"}};
  config.keys.secret_file = kSecretFile;
  config.probe.active_interval = absl::Milliseconds(10);
  for (int i = 0; i < 2; i++) {
    config.peers.push_back({.name = absl::StrCat("vm", i), .addresses = {Rack::FabricAddress(i)}, .origin = ""});
  }
  return config;
}

absl::StatusOr<std::unique_ptr<Agents>> Agents::Start(Rack& rack, const config::Config& config) {
  std::unique_ptr<Agents> agents(new Agents(rack));
  for (int i = 0; i < 2; i++) {
    Vm& machine = rack.machine(i);
    absl::Status status = machine.Put(config::ToToml(config), kConfigFile);
    if (status.ok()) status = machine.Put("a secret of this rack, for tests", kSecretFile, 0600);
    if (!status.ok()) return status;
    auto agent = machine.Start(absl::StrCat("exec cwagentd --config ", kConfigFile));
    if (!agent.ok()) return agent.status();
    agents->agents_[static_cast<size_t>(i)] = *std::move(agent);
  }
  for (int i = 0; i < 2; i++) {
    auto up = rack.machine(i).Run(
        "for i in $(seq 300); do cwctl status >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1", absl::Seconds(90));
    if (up.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the agent of machine ", i, " does not answer: ", agents->agent(i).output()));
  }
  return agents;
}

absl::StatusOr<nlohmann::json> Agents::Ctl(int i, const std::string& arguments) {
  auto text = rack_.machine(i).Run("cwctl --json " + arguments);
  if (!text.ok()) return text.status();
  auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InternalError("cwctl --json " + arguments + " printed no JSON: " + *text);
  return json;
}

absl::StatusOr<std::string> Agents::CtlText(int i, const std::string& arguments) {
  return rack_.machine(i).Run("cwctl " + arguments);
}

}  // namespace cw::vm
