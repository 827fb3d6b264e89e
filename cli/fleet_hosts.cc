// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet join, cwctl fleet remove: hosts that come and hosts that go. docs/fleet.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/fleet.h"
#include "cli/format.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

constexpr char kFolder[] = "/etc/cwfabric";

struct HostOptions {
  std::string host, authority = "pki";
  std::vector<std::string> others, allow;
  bool force = false;
};

// What has to be done for a host, as people paste it.
struct Joining {
  std::vector<std::string> here, there;  // commands beside the authority's key, and on the host
  std::string config;                    // for the end of its cwagentd.toml
};

// They stand in commands and in TOML.
bool IsPlain(const std::string& name) {
  return !name.empty() && name.size() <= 253 && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' || c == ':';
  });
}

// One word of a shell, whatever is in it.
std::string Word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._:/,@%+=", c);
  });
  return plain ? text : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// A basic string of TOML, which takes what JSON writes.
std::string Toml(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Joining MakeJoining(const std::string& fleet, const HostOptions& options) {
  const std::string& host = options.host;
  Joining out;
  const std::string folder = options.authority;
  std::string make = absl::StrFormat("cwctl certs host %s --ca %s", host, Word(folder));
  for (const std::string& other : options.others) absl::StrAppend(&make, " --also ", other);
  out.here = {make,
              absl::StrFormat("scp %s %s %s root@%s:%s/", Word(absl::StrCat(folder, "/", host, ".crt")),
                              Word(absl::StrCat(folder, "/", host, ".key")), Word(folder + "/ca.crt"), host, kFolder)};
  out.config = absl::StrFormat(
      "[fleet]\nendpoints = [%1$s]\ntls_cert = \"%2$s/%3$s.crt\"\ntls_key = \"%2$s/%3$s.key\"\n"
      "tls_ca = \"%2$s/ca.crt\"\n",
      Toml(fleet), kFolder, host);
  const auto quoted = [](std::string* to, const std::string& word) { to->append(Toml(word)); };
  if (!options.allow.empty())
    absl::StrAppend(&out.config, "allow = [", absl::StrJoin(options.allow, ", ", quoted), "]\n");
  out.there = {absl::StrFormat("chown cwfabric %1$s/%2$s.key && chmod 0600 %1$s/%2$s.key", kFolder, host),
               absl::StrFormat("cwagentd --config %s/cwagentd.toml --check-config > /dev/null", kFolder),
               "systemctl reload cwfabric-agent"};
  return out;
}

absl::StatusOr<int> JoinFleet(Session& session, const HostOptions& options) {
  if (session.fleet.empty())
    return absl::InvalidArgumentError(
        "which fleet service is it to tell? Give --fleet HOST:PORT as the host reaches it, or set CWFABRIC_FLEET");
  std::vector<std::string> names = options.others;
  names.push_back(options.host);
  for (const std::string& name : names) {
    if (!IsPlain(name))
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no name or address of a host"));
  }
  const Joining joining = MakeJoining(session.fleet, options);
  if (session.json) {
    const nlohmann::ordered_json out = {{"host", options.host},
                                        {"here", joining.here},
                                        {"config_file", absl::StrCat(kFolder, "/cwagentd.toml")},
                                        {"config", joining.config},
                                        {"there", joining.there}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return kOk;
  }
  std::cout << "# Here, where the authority's key is:\n" << absl::StrJoin(joining.here, "\n") << "\n\n";
  std::cout << "# On " << options.host << ", at the end of " << kFolder << "/cwagentd.toml:\n"
            << joining.config << "\n";
  std::cout << "# On " << options.host << ", then; flows do not notice:\n"
            << absl::StrJoin(joining.there, "\n") << "\n\n";
  std::cout << "# It is there a few seconds later; if not, it says why: cwctl events --type fleet\n"
            << "cwctl --fleet " << Word(session.fleet) << " fleet hosts" << std::endl;
  return kOk;
}

absl::StatusOr<int> RemoveHost(Session& session, const HostOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetRemoveRequest request;
  request.set_host(options.host);
  request.set_force(options.force);
  const absl::StatusOr<v1::FleetActionReply> reply = (*client)->Remove(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { std::cout << Printable(reply->effect()) << '\n'; });
  return kOk;
}

}  // namespace

void AddFleetHostVerbs(CLI::App& fleet, Session& session) {
  auto options = std::make_shared<HostOptions>();
  CLI::App* join = fleet.add_subcommand("join", "Print what a new host needs: certificate, configuration, commands");
  join->add_option("host", options->host, "The host's name, as its agent has it")->required();
  join->add_option("--ca", options->authority, "Folder with ca.crt and ca.key (cwctl certs ca)")
      ->type_name("DIR")
      ->capture_default_str();
  join->add_option("--also", options->others, "Further names and addresses of it, such as where its metrics are");
  join->add_option("--allow", options->allow, "What the fleet may ask it for")
      ->check(CLI::IsMember({"plan", "drain", "label", "mode", "audit"}));
  join->callback(
      [&session, options] { session.action = [&session, options] { return JoinFleet(session, *options); }; });

  CLI::App* remove = fleet.add_subcommand("remove", "Forget a host that left for good; its history stays");
  remove->add_option("host", options->host, "Its name, as in cwctl fleet hosts")->required();
  remove->add_flag("--force", options->force, "Though it is connected; it comes back when its agent connects again");
  remove->callback(
      [&session, options] { session.action = [&session, options] { return RemoveHost(session, *options); }; });
}

}  // namespace cw::cli
