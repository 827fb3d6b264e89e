// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/config/reader.h"
#include "userspace/config/schema.h"
#include "userspace/model/regular_file.h"

namespace cw::config {
namespace {

void CheckNics(const Config& config, const Complain& complain) {
  if (config.nics.empty()) {
    complain("", "no NIC is named; add a table [[nic]] with name = \"DEVICE\" for each NIC to watch");
  }
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < config.nics.size(); ++i) {
    const std::string table = absl::StrFormat("nic[%d]", i);
    if (config.nics[i].name.empty()) complain(table, "this [[nic]] has no name; add name = \"DEVICE\"");
    if (!config.nics[i].name.empty() && !seen.emplace(config.nics[i].name, i).second) {
      complain(table + ".name", absl::StrFormat("NIC %s is named twice; remove one", config.nics[i].name));
    }
  }
}

void CheckScope(const Config& config, const ScopeConfig& scope, const std::string& table, const Complain& complain) {
  const int named = (scope.nic.empty() ? 0 : 1) + (scope.rail ? 1 : 0) + (scope.label.empty() ? 0 : 1);
  if (named != 1) complain(table, "this [[scope]] has to name one of nic, rail and label; use one table for each");
  const bool known =
      std::any_of(config.nics.begin(), config.nics.end(), [&](const NicConfig& nic) { return nic.name == scope.nic; });
  if (!scope.nic.empty() && !known)
    complain(table + ".nic",
             absl::StrFormat("there is no [[nic]] %s; correct the name or remove the table", scope.nic));
  if (scope.rail && static_cast<size_t>(*scope.rail) >= config.nics.size()) {
    complain(table + ".rail", absl::StrFormat("there is no rail %d: the [[nic]] tables are 0 to %d", *scope.rail,
                                              static_cast<int>(config.nics.size()) - 1));
  }
  if (scope.label.size() > kLongestLabel)
    complain(table + ".label", absl::StrFormat("a label has at most %d bytes", kLongestLabel));
}

void CheckScopes(const Config& config, const Complain& complain) {
  for (size_t i = 0; i < config.scopes.size(); ++i)
    CheckScope(config, config.scopes[i], absl::StrFormat("scope[%d]", i), complain);
}

void CheckPeer(const PeerConfig& peer, const std::string& table, const Complain& complain) {
  if (peer.name.empty()) complain(table, "this [[peer]] has no name; add name = \"HOST\"");
  if (peer.addresses.empty()) {
    complain(table, "this [[peer]] has no addresses; add addresses = [\"10.0.1.10\"], one per NIC of the peer");
  }
}

void CheckPeers(const std::vector<PeerConfig>& peers, const Complain& complain) {
  for (size_t i = 0; i < peers.size(); ++i) CheckPeer(peers[i], absl::StrFormat("peer[%d]", i), complain);
}

void CheckClock(const ClockConfig& clock, const Complain& complain) {
  if (clock.chrony.sock.empty() && !clock.chrony.shm) return;
  if (clock.anchor != Anchor::kNone) {
    complain("clock.chrony",
             "clock.anchor makes this host's kernel clock the anchor, so chronyd would follow itself; "
             "remove clock.anchor or [clock.chrony]");
  }
  if (clock.page.empty()) {
    complain("clock.chrony",
             "clock.page is empty, so nothing is published and chronyd gets no samples; set clock.page");
  }
}

void CheckMetrics(const Config& config, const Complain& complain) {
  const absl::StatusOr<Listen> listen = ParseListen(config.metrics.listen);
  if (listen.ok() && !listen->loopback && !config.metrics.allow_remote) {
    complain("metrics.listen",
             absl::StrFormat("other hosts reach %s, without encryption or password; choose 127.0.0.1:%d, or set "
                             "metrics.allow_remote = true",
                             config.metrics.listen, listen->port));
  }
}

void CheckApi(const ApiConfig& api, const Complain& complain) {
  for (const auto& [key, file] :
       {std::pair{"tls_cert", &api.tls_cert}, {"tls_key", &api.tls_key}, {"tls_ca", &api.tls_ca}}) {
    if (api.listen.empty() || !file->empty()) continue;
    complain("api.listen",
             absl::StrFormat(
                 "%s would be served without TLS, which is refused on every address; set api.%s (see cwctl certs "
                 "--help), or leave api.listen empty",
                 absl::StrJoin(api.listen, ", "), key));
  }
}

void CheckFleet(const Config& config, const Complain& complain) {
  for (const std::string& what : config.fleet.allow) {
    if (what == "plan" || what == "drain" || what == "label" || what == "mode" || what == "audit") continue;
    complain("fleet.allow", absl::StrFormat("the fleet cannot be allowed \"%s\"; there are plan, drain, label, mode "
                                            "and audit",
                                            what));
  }
  if (config.fleet.ring_mib > 0 && config.fleet.ring_mib < 4)
    complain("fleet.ring_mib", "a ring of less than 4 MiB holds no failure; 0 is none");
  if (config.fleet.endpoints.empty()) return;
  for (const auto& [key, file] :
       {std::pair{"tls_cert", config.FleetCert()}, {"tls_key", config.FleetKey()}, {"tls_ca", config.FleetCa()}}) {
    if (!file.empty()) continue;
    complain("fleet.endpoints",
             absl::StrFormat("the fleet service takes hosts by their certificates alone; set fleet.%s, or api.%s for "
                             "both (see cwctl certs --help)",
                             key, key));
  }
  if (config.fleet.spool_dir.empty())
    complain("fleet.spool_dir", "what the fleet service has not taken yet needs a folder; leave it at \"auto\"");
}

void CheckKeysAndProbe(const Config& config, const Complain& complain) {
  const bool peers = !config.peers.empty() || !config.peers_file.empty() || !config.peers_dir.empty();
  const bool second_alone = !config.keys.second_secret_file.empty() && config.keys.send_key_id == 1;
  if (config.keys.secret_file.empty() && !config.keys.second_secret_file.empty() && !second_alone) {
    complain("keys.send_key_id",
             "only keys.second_secret_file is set: set keys.send_key_id = 1, or keys.secret_file as well");
  } else if (peers && config.keys.secret_file.empty() && !second_alone) {
    complain("keys", "there are peers but no secret; set keys.secret_file to a file that all hosts of the group share");
  }
  if (config.keys.send_key_id == 1 && config.keys.second_secret_file.empty()) {
    complain("keys.send_key_id", "keys.send_key_id is 1 but keys.second_secret_file is not set");
  }
  if (config.probe.idle_interval < config.probe.active_interval) {
    complain("probe.idle_interval", "probe.idle_interval must not be shorter than probe.active_interval");
  }
  if (config.steering.lease > absl::ZeroDuration() && config.steering.lease < absl::Seconds(2)) {
    complain("steering.lease", "steering.lease is renewed every second; make it 2s or longer, or \"0\" for none");
  }
  if (config.probe.first_port + config.probe.ports > 65536) {
    complain("probe.ports", absl::StrFormat("probe.first_port + probe.ports goes beyond port 65535; at most %d ports "
                                            "follow port %d",
                                            65536 - config.probe.first_port, config.probe.first_port));
  }
  const bool verbs = std::any_of(config.nics.begin(), config.nics.end(), [&](const NicConfig& nic) {
    const Transport transport = TransportOf(nic, config.probe);
    return transport == Transport::kVerbs || transport == Transport::kAuto;
  });
  if (verbs && config.probe.first_port < kFirstVerbsPort) {
    complain("probe.first_port",
             "probes by verbs have UDP source ports from 49152 on; leave probe.first_port at 49152");
  }
}

absl::Status AppendPeers(const std::string& path, std::vector<PeerConfig>& peers) {
  absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return text.status();
  std::vector<PeerConfig> found;
  absl::Status status = ReadToml(
      *text, path, [&](Visitor& visitor) { WalkPeers(visitor, found); },
      [&](const Complain& complain) { CheckPeers(found, complain); });
  if (!status.ok()) return status;
  peers.insert(peers.end(), found.begin(), found.end());
  return absl::OkStatus();
}

absl::Status CheckUnique(const std::vector<PeerConfig>& peers) {
  std::vector<std::string> faults;
  std::map<std::string, const PeerConfig*> names, addresses;
  for (const PeerConfig& peer : peers) {
    const auto [name, new_name] = names.emplace(peer.name, &peer);
    if (!new_name) {
      faults.push_back(
          absl::StrFormat("%s:1: peer %s is also in %s; remove one", peer.origin, peer.name, name->second->origin));
    }
    for (const std::string& text : peer.addresses) {
      const auto [address, new_address] = addresses.emplace(text, &peer);
      if (!new_address) {
        faults.push_back(absl::StrFormat("%s:1: address %s of peer %s is also that of peer %s in %s", peer.origin, text,
                                         peer.name, address->second->name, address->second->origin));
      }
    }
  }
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

}  // namespace

std::string Config::RunDir() const { return run_dir.empty() ? "/run/cwfabric/" + instance : run_dir; }

std::string Config::StateDir() const { return state_dir.empty() ? "/var/lib/cwfabric/" + instance : state_dir; }

std::string Config::SocketPath() const { return RunDir() + "/agent.sock"; }

std::string Config::ClockPage() const { return clock.page == "auto" ? RunDir() + "/clock" : clock.page; }

std::string Config::ActsFile() const { return api.acts_file == "auto" ? StateDir() + "/acts.jsonl" : api.acts_file; }

std::string Config::SpoolDir() const { return fleet.spool_dir == "auto" ? StateDir() + "/spool" : fleet.spool_dir; }

std::string Config::RingDir() const { return StateDir() + "/ring"; }

Listen Config::MetricsListen() const {
  if (metrics.listen == "auto") return {.kind = Listen::Kind::kUnix, .path = RunDir() + "/metrics.sock"};
  return ParseListen(metrics.listen).value_or(Listen{});
}

std::string Config::MetricsAddress() const {
  if (fleet.metrics_address != "auto") return fleet.metrics_address;
  const Listen listen = MetricsListen();
  if (listen.kind != Listen::Kind::kTcp || listen.loopback) return "";
  const bool any = listen.address == "0.0.0.0" || listen.address == "::";
  return any ? absl::StrCat(":", listen.port) : metrics.listen;
}

absl::StatusOr<Config> ParseConfig(absl::string_view text, absl::string_view file) {
  Config config;
  absl::Status status = ReadToml(
      text, file, [&](Visitor& visitor) { Walk(visitor, config); },
      [&](const Complain& complain) {
        CheckNics(config, complain);
        CheckScopes(config, complain);
        CheckPeers(config.peers, complain);
        CheckKeysAndProbe(config, complain);
        CheckClock(config.clock, complain);
        CheckMetrics(config, complain);
        CheckApi(config.api, complain);
        CheckFleet(config, complain);
      });
  if (!status.ok()) return status;
  if (status = CheckUnique(config.peers); !status.ok()) return status;
  config.run_dir = config.RunDir();
  config.state_dir = config.StateDir();
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return text.status();
  return ParseConfig(*text, path);
}

namespace {

// The *.toml files of the folder, by name. What only looks like one goes to `skipped`, a line each.
absl::StatusOr<std::vector<std::string>> FilesOfPeersDir(const Config& config, std::vector<std::string>* skipped) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(config.peers_dir, error)) {
    const std::string name = entry.path().filename().string();
    // Files that are being written have other names (.tmp, .swp, hidden).
    if (entry.path().extension() != ".toml" || name[0] == '.') continue;
    std::error_code none;
    const fs::file_type type = fs::status(entry.path(), none).type();
    if (type == fs::file_type::regular) {
      files.push_back(entry.path().string());
    } else if (skipped != nullptr) {
      skipped->push_back(absl::StrFormat("%s (peers_dir) is %s, and is left out: put a file there, or remove it",
                                         entry.path().string(),
                                         type == fs::file_type::not_found   ? "a link to nothing"
                                         : type == fs::file_type::directory ? "a folder"
                                                                            : "no regular file"));
    }
  }
  if (error) {
    std::string text = absl::StrFormat("cannot read folder %s (peers_dir): %s", config.peers_dir, error.message());
    // What else is missing is said as well, so that one look is enough.
    std::error_code missing;
    if (!config.peers_file.empty() && !fs::exists(config.peers_file, missing))
      absl::StrAppend(&text, "\nthere is no file ", config.peers_file, " (peers_file)");
    return absl::NotFoundError(text);
  }
  std::sort(files.begin(), files.end());
  if (skipped != nullptr) std::sort(skipped->begin(), skipped->end());
  return files;
}

}  // namespace

absl::StatusOr<std::vector<PeerConfig>> LoadPeers(const Config& config, std::vector<std::string>* skipped) {
  std::vector<PeerConfig> peers = config.peers;
  std::vector<std::string> files;
  if (!config.peers_file.empty()) files.push_back(config.peers_file);
  if (!config.peers_dir.empty()) {
    const absl::StatusOr<std::vector<std::string>> in_folder = FilesOfPeersDir(config, skipped);
    if (!in_folder.ok()) return in_folder.status();
    files.insert(files.end(), in_folder->begin(), in_folder->end());
  }
  for (const std::string& file : files) {
    if (absl::Status status = AppendPeers(file, peers); !status.ok()) return status;
  }
  if (absl::Status status = CheckUnique(peers); !status.ok()) return status;
  return peers;
}

std::vector<PeerConfig> PeersExceptSelf(std::vector<PeerConfig> peers, const std::vector<std::string>& own_addresses) {
  const std::set<std::string> own(own_addresses.begin(), own_addresses.end());
  for (PeerConfig& peer : peers) {
    std::erase_if(peer.addresses, [&](const std::string& address) { return own.count(address) != 0; });
  }
  std::erase_if(peers, [](const PeerConfig& peer) { return peer.addresses.empty(); });
  return peers;
}

std::string OwnName(const std::vector<PeerConfig>& peers, const std::vector<std::string>& own_addresses) {
  for (const PeerConfig& peer : peers) {
    for (const std::string& address : own_addresses) {
      if (std::find(peer.addresses.begin(), peer.addresses.end(), address) != peer.addresses.end()) return peer.name;
    }
  }
  return "";
}

absl::Status CheckSecretFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "there is no key file %s; make one, and give all hosts the same: (umask 077; mkdir -p %s; head -c 32 "
        "/dev/urandom > %s)",
        path, fs::path(path).parent_path().string(), path));
  }
  if (!fs::is_regular_file(status)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is no regular file; make one: (umask 077; head -c 32 /dev/urandom > %s)", path, path));
  }
  const fs::perms others = fs::perms::group_all | fs::perms::others_all;
  if ((status.permissions() & others) != fs::perms::none) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s may be used by others than its owner; run: chmod 600 %s", path, path));
  }
  const uintmax_t size = fs::file_size(path, error);
  if (error || size < 16) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s holds fewer than 16 bytes; make a new secret: (umask 077; head -c 32 /dev/urandom > %s)", path, path));
  }
  return absl::OkStatus();
}

absl::string_view ToString(Mode mode) { return ModeWords()[static_cast<size_t>(mode)]; }
absl::string_view ToString(LogLevel level) { return LogLevelWords()[static_cast<size_t>(level)]; }
absl::string_view ToString(Attach attach) { return AttachWords()[static_cast<size_t>(attach)]; }
absl::string_view ToString(RxStamps stamps) { return RxStampsWords()[static_cast<size_t>(stamps)]; }
Transport TransportOf(const NicConfig& nic, const ProbeConfig& probe) {
  switch (nic.transport) {
    case NicTransport::kKernel:
      return Transport::kKernel;
    case NicTransport::kVerbs:
      return Transport::kVerbs;
    case NicTransport::kAuto:
      return Transport::kAuto;
    case NicTransport::kOffload:
      return Transport::kOffload;
    case NicTransport::kProbe:
      break;
  }
  return probe.transport;
}

absl::string_view ToString(Anchor anchor) { return AnchorWords()[static_cast<size_t>(anchor)]; }

absl::StatusOr<Mode> ParseMode(absl::string_view text) {
  const std::vector<std::string>& words = ModeWords();
  const auto found = std::find(words.begin(), words.end(), std::string(text));
  if (found == words.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\" is no mode; choose %s", text, absl::StrJoin(words, ", ")));
  }
  return static_cast<Mode>(found - words.begin());
}

}  // namespace cw::config
