// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fleet_bed.h"

#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/tls/authority.h"

namespace cw::lab {
namespace {

constexpr char kAddress[] = "192.168.77.10:9480";  // of host 0 (Fabric::HostMgmtAddr)
constexpr absl::Duration kEndsWithin = absl::Seconds(20);

absl::Status WriteSecretly(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (chmod(path.c_str(), 0600) != 0) return absl::ErrnoToStatus(errno, path);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError("cannot write " + path);
}

}  // namespace

std::string FabricFileOf(const FabricSpec& spec) {
  std::string text;
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    absl::StrAppendFormat(&text, "[[switch]]\nname = \"leaf%d\"\nrack = \"rack%d\"\naddresses = [\"10.0.%d.1\"", leaf,
                          leaf, leaf);
    for (int spine = 0; spine < spec.spines; ++spine)
      absl::StrAppendFormat(&text, ", \"10.1.%d.%d\"", spine, 2 * leaf + 1);
    text += "]\n";
  }
  for (int spine = 0; spine < spec.spines; ++spine) {
    absl::StrAppendFormat(&text, "[[switch]]\nname = \"spine%d\"\naddresses = [", spine);
    for (int leaf = 0; leaf < spec.leaves; ++leaf)
      absl::StrAppendFormat(&text, "%s\"10.1.%d.%d\"", leaf == 0 ? "" : ", ", spine, 2 * leaf);
    text += "]\n";
    for (int leaf = 0; leaf < spec.leaves; ++leaf) {
      absl::StrAppendFormat(&text, "[[cable]]\nfrom = \"spine%d\"\nto = \"10.1.%d.%d\"\n", spine, spine, 2 * leaf + 1);
      absl::StrAppendFormat(&text, "[[cable]]\nfrom = \"leaf%d\"\nto = \"10.1.%d.%d\"\n", leaf, spine, 2 * leaf);
    }
  }
  return text;
}

absl::StatusOr<std::unique_ptr<FleetBed>> FleetBed::Make(const FleetBedSpec& spec) {
  std::unique_ptr<FleetBed> bed(new FleetBed(spec));
  for (std::string* binary : {&bed->spec_.fleetd, &bed->spec_.cwctl}) {
    absl::StatusOr<std::string> found = AgentLauncher{.binary = *binary}.FindBinary();
    if (!found.ok()) return found.status();
    *binary = *std::move(found);
  }
  if (absl::Status status = bed->MakeCertificates(); !status.ok()) return status;
  const std::string& folder = spec.folder;
  std::ofstream config(folder + "/cwfleetd.toml");
  config << absl::StrFormat("tls_cert = \"%s/fleet.crt\"\ntls_key = \"%s/fleet.key\"\ntls_ca = \"%s/ca.crt\"\n", folder,
                            folder, folder)
         << absl::StrFormat("store = \"%s/fleet.db\"\n", spec.store.empty() ? folder : spec.store);
  if (!spec.fabric_file.empty()) config << absl::StrFormat("fabric_file = \"%s/fabric.toml\"\n", folder);
  config << spec.more_config;
  config.close();
  std::ofstream fabric(folder + "/fabric.toml");
  fabric << spec.fabric_file;
  fabric.close();
  if (!config || !fabric) return absl::UnavailableError("cannot write into " + folder);
  return bed;
}

absl::Status FleetBed::MakeCertificates() const {
  const tls::Life life{absl::Now(), 10};
  const absl::StatusOr<tls::Issued> authority = tls::MakeAuthority("lab", life);
  if (!authority.ok()) return authority.status();
  absl::Status status = WriteSecretly(spec_.folder + "/ca.crt", authority->certificate);
  const auto write = [&](const std::string& name, const absl::StatusOr<tls::Issued>& issued) {
    status.Update(issued.status());
    if (!status.ok()) return;
    status.Update(WriteSecretly(absl::StrCat(spec_.folder, "/", name, ".crt"), issued->certificate));
    status.Update(WriteSecretly(absl::StrCat(spec_.folder, "/", name, ".key"), issued->key));
  };
  for (int host = 0; host < spec_.hosts; ++host)
    write(absl::StrCat("h", host), tls::MakeHost(*authority, absl::StrCat("h", host), {}, life));
  write("fleet", tls::MakeHost(*authority, "fleet", {"192.168.77.10", "127.0.0.1"}, life));
  write("alice", tls::MakeUser(*authority, "alice", "read", life));
  write("root0", tls::MakeUser(*authority, "root0", "admin", life));
  return status;
}

FleetBed::~FleetBed() {
  if (process_.pid != 0) EndProcess(process_).IgnoreError();
}

void FleetBed::Configure(int host, config::Config& config) const {
  config.fleet.endpoints = {kAddress};
  config.fleet.ring_mib = 16;  // all hosts' rings are on one disk here
  config.fleet.tls_cert = absl::StrFormat("%s/h%d.crt", spec_.folder, host);
  config.fleet.tls_key = absl::StrFormat("%s/h%d.key", spec_.folder, host);
  config.fleet.tls_ca = spec_.folder + "/ca.crt";
}

std::vector<std::string> FleetBed::OnHost0(std::vector<std::string> argv) const {
  argv.insert(argv.begin(), {"nsenter", "--net=" + netns_});
  return argv;
}

absl::Status FleetBed::Start(const Fabric& fabric) {
  netns_ = fabric.HostNetns(0);
  const absl::StatusOr<ProcessId> started =
      StartProcess(OnHost0({spec_.fleetd, "--config", spec_.folder + "/cwfleetd.toml"}), spec_.folder + "/log");
  if (!started.ok()) return started.status();
  process_ = *started;
  return absl::OkStatus();
}

absl::Status FleetBed::Kill() {
  if (kill(process_.pid, SIGKILL) != 0) return absl::ErrnoToStatus(errno, "cannot kill cwfleetd");
  return EndProcess(std::exchange(process_, {}));
}

absl::Status FleetBed::End() {
  if (kill(process_.pid, SIGTERM) != 0) return absl::ErrnoToStatus(errno, "cannot end cwfleetd");
  for (const absl::Time end = absl::Now() + kEndsWithin; absl::Now() < end; absl::SleepFor(absl::Milliseconds(20))) {
    if (!IsAlive(process_)) return EndProcess(std::exchange(process_, {}));
  }
  return absl::DeadlineExceededError("cwfleetd does not end on SIGTERM: " + Log());
}

std::vector<std::string> FleetBed::Cwctl(const std::vector<std::string>& verb, const std::string& user) const {
  std::vector<std::string> argv = {spec_.cwctl,
                                   "--fleet",
                                   "127.0.0.1:9480",
                                   "--cert",
                                   spec_.folder + "/" + user + ".crt",
                                   "--key",
                                   spec_.folder + "/" + user + ".key",
                                   "--ca",
                                   spec_.folder + "/ca.crt"};
  argv.insert(argv.end(), verb.begin(), verb.end());
  return OnHost0(argv);
}

absl::StatusOr<std::string> FleetBed::Run(const std::vector<std::string>& verb, const std::string& user) const {
  return RunTool(Cwctl(verb, user));
}

nlohmann::json FleetBed::Ask(const std::vector<std::string>& verb, const std::string& user) const {
  std::vector<std::string> argv = {"--json"};
  argv.insert(argv.end(), verb.begin(), verb.end());
  const absl::StatusOr<std::string> text = Run(argv, user);
  return text.ok() ? nlohmann::json::parse(*text, nullptr, false)
                   : nlohmann::json{{"error", std::string(text.status().message())}};
}

bool FleetBed::AllThere() const {
  const nlohmann::json reply = Ask({"fleet", "hosts"});
  if (!reply.contains("hosts") || reply["hosts"].size() != static_cast<size_t>(spec_.hosts)) return false;
  for (const nlohmann::json& host : reply["hosts"]) {
    if (!host["connected"].get<bool>() || host["up"].get<int>() == 0) return false;
  }
  return true;
}

std::string FleetBed::Log() const {
  std::ifstream log(spec_.folder + "/log");
  return absl::StrCat(Ask({"fleet", "hosts"}).dump(1), "\n", std::string{std::istreambuf_iterator<char>(log), {}});
}

FleetBed::Seen FleetBed::Written(const Fabric& fabric, int host) const {
  Seen seen;
  std::ifstream file(fabric.HostRunDir(host) + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_discarded()) seen.emplace(event["seq"].get<uint64_t>(), event["text"].get<std::string>());
  }
  return seen;
}

FleetBed::Seen FleetBed::Stored(int host) const {
  Seen seen;
  const nlohmann::json reply = Ask({"fleet", "events", "--host", absl::StrCat("h", host), "-n", "10000"});
  if (!reply.contains("events")) return seen;
  for (const nlohmann::json& event : reply["events"])
    seen.emplace(event["event"]["event"]["seq"].get<uint64_t>(), event["event"]["event"]["text"].get<std::string>());
  return seen;
}

}  // namespace cw::lab
