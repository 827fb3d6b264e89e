// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/agents.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

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
  config.mode = config::Mode::kProtect;
  config.nics = {{.name = "eth0"}};
  config.keys.secret_file = kSecretFile;
  config.probe.active_interval = absl::Milliseconds(10);
  for (int i = 0; i < 2; i++) {
    config.peers.push_back({.name = absl::StrCat("vm", i), .addresses = {Rack::FabricAddress(i)}, .origin = ""});
  }
  return config;
}

absl::Status Agents::Launch(int i) {
  Vm& machine = rack_.machine(i);
  absl::Status status = machine.Put(config::ToToml(configs_[static_cast<size_t>(i)]), kConfigFile);
  if (status.ok()) status = machine.Put("a secret of this rack, for tests", kSecretFile, 0600);
  if (!status.ok()) return status;
  auto agent = machine.Start(absl::StrCat("echo -900 >/proc/self/oom_score_adj; exec cwagentd --config ", kConfigFile));
  if (agent.ok()) agents_[static_cast<size_t>(i)] = *std::move(agent);
  return agent.status();
}

absl::Status Agents::AwaitAnswer(int i) {
  auto up = rack_.machine(i).Run(
      "for i in $(seq 300); do cwctl status >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1", absl::Seconds(90));
  if (up.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the agent of machine ", i, " does not answer: ", agent(i).output()));
}

absl::Status Agents::StartAgain(int i) {
  absl::Status status = Launch(i);
  return status.ok() ? AwaitAnswer(i) : status;
}

absl::Status Agents::StartAgain(int i, const config::Config& config) {
  const auto at = static_cast<size_t>(i);
  agents_[at].reset();
  configs_[at] = config;
  return StartAgain(i);
}

absl::StatusOr<std::unique_ptr<Agents>> Agents::Start(Rack& rack, const std::array<config::Config, 2>& configs) {
  std::unique_ptr<Agents> agents(new Agents(rack, configs));
  absl::Status status;
  for (int i = 0; i < 2; i++) status.Update(agents->Launch(i));
  for (int i = 0; i < 2; i++) {
    if (status.ok()) status = agents->AwaitAnswer(i);
  }
  if (!status.ok()) return status;
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

absl::StatusOr<std::vector<nlohmann::json>> Agents::Events(int i, const std::string& type) {
  auto text = rack_.machine(i).Run("cwctl --json events --last 0" + (type.empty() ? "" : " --type " + type));
  if (!text.ok()) return text.status();
  std::vector<nlohmann::json> events;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    events.push_back(nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false));
    if (events.back().is_discarded()) return absl::InternalError("cwctl events printed no JSON: " + std::string(line));
  }
  return events;
}

absl::StatusOr<std::vector<SentFlow>> Agents::SentFlows(int i) {
  auto reply = Ctl(i, "qps");
  if (!reply.ok()) return reply.status();
  std::vector<SentFlow> flows;
  for (const auto& flow : reply->at("flows")) {
    if (flow.at("received") || flow.at("gone") != "" || flow.at("process") == "") continue;
    flows.push_back({.id = flow.at("id"),
                     .process = flow.at("process"),
                     .nic = flow.at("nic"),
                     .device = flow.at("device"),
                     .local_qpn = flow.at("local_qpn"),
                     .remote_qpn = flow.at("remote_qpn"),
                     .slot = flow.at("slot"),
                     .udp_port = flow.at("udp_port"),
                     .owd_samples = flow.at("owd").is_null() ? 0 : flow.at("owd").at("samples").get<uint64_t>(),
                     .owd_p50_ns = flow.at("owd").is_null() ? 0 : flow.at("owd").at("p50_ns").get<double>(),
                     .owd_error_ns = flow.at("owd_error_ns"),
                     .nak_seq = flow.at("nak_seq")});
  }
  std::sort(flows.begin(), flows.end(), [](const auto& a, const auto& b) { return a.local_qpn < b.local_qpn; });
  return flows;
}

absl::StatusOr<std::map<int, int>> Agents::LivePathsBySpine(int i) {
  auto reply = Ctl(i, "paths");
  if (!reply.ok()) return reply.status();
  std::map<int, int> paths;
  for (const auto& pair : reply->at("pairs")) {
    for (const auto& path : pair.at("paths")) {
      if (!path.at("assignable").get<bool>() || path.at("state") != "up") continue;
      auto spine = rack_.fabric().PathOf(pair.at("local_address").get<std::string>(),
                                         pair.at("remote_address").get<std::string>(), path.at("udp_port"));
      if (!spine.ok()) return spine.status();
      paths.emplace(*spine, path.at("slot"));
    }
  }
  return paths;
}

absl::Status Agents::WaitForPaths(absl::Duration timeout) {
  const auto spines = static_cast<size_t>(rack_.fabric().spec().spines);
  std::array<size_t, 2> found = {0, 0};
  for (absl::Time end = absl::Now() + timeout; absl::Now() < end; absl::SleepFor(absl::Milliseconds(300))) {
    for (int i = 0; i < 2; i++) {
      auto paths = LivePathsBySpine(i);
      if (!paths.ok()) return paths.status();
      found[static_cast<size_t>(i)] = paths->size();
    }
    if (found[0] == spines && found[1] == spines) return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat("of ", spines, " spines, machine 0 has live paths over ", found[0],
                                                  ", machine 1 over ", found[1], ": ",
                                                  CtlText(0, "paths").value_or("cwctl paths failed")));
}

}  // namespace cw::vm
