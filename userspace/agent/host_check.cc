// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/host_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/acts/acts_file.h"
#include "userspace/agent/nic_address.h"
#include "userspace/api/unix_peer.h"
#include "userspace/model/regular_file.h"
#include "userspace/tls/certificate.h"
#include "userspace/tls/revocation.h"

namespace cw::agent {
namespace {

// The same fault, with where in the file it comes from.
absl::Status At(const std::string& place, const absl::Status& status) {
  if (status.ok() || place.empty()) return status;
  return {status.code(), absl::StrCat(place, ": ", status.message())};
}

// Files and groups that the API needs on this host.
void CheckApi(const config::ApiConfig& given, std::vector<absl::Status>& problems) {
  problems.push_back(api::ResolveGroups({given.read_group, given.steer_group, given.admin_group}).status());
  if (given.listen.empty()) return;
  const tls::Files files{.cert = given.tls_cert, .key = given.tls_key, .ca = given.tls_ca, .crl = given.tls_crl};
  problems.push_back(tls::Load(files).status());
  problems.push_back(tls::Revocations(files).Load());
}

// What is not there yet is made by whoever opens the spool, so the nearest folder above it counts.
absl::Status CheckFolder(const std::string& key, const std::string& folder) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (!std::filesystem::is_directory(there, error))
    return absl::FailedPreconditionError(absl::StrCat(key, ": ", there.string(), " is no folder"));
  if (access(there.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(key, ": cannot write to ", there.string(), ": ", std::strerror(errno)));
}

}  // namespace

absl::Status CheckFleet(const config::Config& config) {
  if (config.fleet.endpoints.empty()) return absl::OkStatus();
  const tls::Files files{.cert = config.FleetCert(), .key = config.FleetKey(), .ca = config.FleetCa()};
  return Together({At("[fleet]", tls::Load(files).status()), CheckFolder("fleet.spool_dir", config.SpoolDir())});
}

absl::Status CheckNic(const HostNet& net, const config::NicConfig& nic) {
  const absl::StatusOr<uint32_t> ifindex = DeviceCalled(net, nic.name);
  if (!ifindex.ok()) return ifindex.status();
  if (net.LinkAt(*ifindex)->loopback)
    return absl::FailedPreconditionError(absl::StrCat(
        "NIC ", nic.name,
        " is this host's loopback, on which no peer is; name the device that the cable is on (ip -br link)"));
  return AddressOf(net, nic).status();
}

absl::StatusOr<Addr> AddressOf(const HostNet& net, const config::NicConfig& nic) {
  const absl::StatusOr<uint32_t> ifindex = DeviceCalled(net, nic.name);
  if (!ifindex.ok()) return ifindex.status();
  if (nic.address == "auto") return FirstAddress(net, *ifindex);
  absl::StatusOr<Addr> address = Addr::Parse(nic.address);
  if (!address.ok()) return address.status();
  const std::string why = WhyNoAddress(net, *ifindex, nic.name, *address);
  if (why.empty()) return *address;
  const bool elsewhere = std::any_of(net.addresses.begin(), net.addresses.end(),
                                     [&](const HostAddress& a) { return a.address == *address; });
  return absl::FailedPreconditionError(
      absl::StrCat("NIC ", nic.name, ": ", elsewhere ? why : absl::StrCat("this host has no address ", nic.address),
                   "; addresses of ", nic.name, ": ", AddressesOf(net, *ifindex)));
}

absl::Status CheckNic(const config::NicConfig& nic) {
  const absl::StatusOr<HostNet> net = ReadHostNet();
  return net.ok() ? CheckNic(*net, nic) : net.status();
}

absl::Status CheckNewNics(const config::Config& running, const config::Config& fresh) {
  std::vector<absl::Status> problems;
  for (const config::NicConfig& nic : fresh.nics) {
    const bool known = std::any_of(running.nics.begin(), running.nics.end(), [&](const config::NicConfig& r) {
      return r.name == nic.name && r.address == nic.address;
    });
    if (!known) problems.push_back(At(nic.origin, CheckNic(nic)));
  }
  return Together(problems);
}

absl::Status Together(const std::vector<absl::Status>& problems) {
  std::vector<std::string> lines;
  std::set<std::string> told;
  for (const absl::Status& status : problems) {
    const std::string line(status.message());
    if (!status.ok() && told.insert(line).second) lines.push_back(line);
  }
  return lines.empty() ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrJoin(lines, "\n"));
}

absl::Status CheckHost(const config::Config& config) {
  std::vector<absl::Status> problems;
  const absl::StatusOr<HostNet> net = ReadHostNet();
  problems.push_back(net.status());
  for (const config::NicConfig& nic : config.nics)
    if (net.ok()) problems.push_back(At(nic.origin, CheckNic(*net, nic)));
  problems.push_back(config::LoadPeers(config).status());
  problems.push_back(At("keys.secret_file", config::CheckSecretFile(config.keys.secret_file)));
  problems.push_back(At("keys.second_secret_file", config::CheckSecretFile(config.keys.second_secret_file)));
  CheckApi(config.api, problems);
  for (const std::string& file :
       {config.log.events_file, config.log.report_file, config.log.observations_file, config.ClockPage()})
    problems.push_back(CheckPlaceOfFile(file));
  if (const std::string fault = acts::ActsFile(config.ActsFile()).NoFile(); !fault.empty())
    problems.push_back(absl::FailedPreconditionError(absl::StrCat("api.acts_file: ", fault)));
  return Together(problems);
}

}  // namespace cw::agent
