// SPDX-License-Identifier: Apache-2.0
//
// cwfleetd's configuration: one TOML file. Value type; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct FleetdConfig {
  std::string instance;                                // "": the host's name
  std::vector<std::string> listen = {"0.0.0.0:9480"};  // for agents and for people, mutual TLS
  int connections_per_address = 256;
  std::string tls_cert, tls_key, tls_ca, tls_crl;  // as the agent's [api]
  std::string store = "/var/lib/cwfabric-fleet/fleet.db";
  std::string acts_file = "auto";                      // who changed what; "auto": beside the store, "" = nowhere
  std::string fabric_file;                             // fleet.toml: names of switches, cables as planned; "" = none
  std::string rules_file;                              // rules.toml; "" = the defaults
  absl::Duration keep_fine = absl::Hours(48);          // 10 s
  absl::Duration keep_minutes = absl::Hours(24 * 14);  // 60 s
  absl::Duration keep_coarse = absl::Hours(24 * 365);  // 300 s
  absl::Duration keep_events = absl::Hours(24 * 365);
  int store_gib = 64;  // of paths; the finest goes first
  AlertTargets alerts;
  std::string runbook_url;            // "" = none
  std::string incident_dir = "auto";  // "auto": beside the store
  size_t incident_severity = 2;       // least of findings that one is taken of by itself, as Severity; 3: of none
  absl::Duration incident_before = absl::Minutes(5), incident_after = absl::Minutes(5);
  int incident_gib = 4;
  std::string metrics_listen = "none";  // as config::ParseListen takes it

  Retention KeepRules() const;
  std::string IncidentDir() const;
  std::string ActsFile() const;

 private:
  std::string BesideStore(const std::string& name) const;
};

// InvalidArgument: all faults, each with file and line. `file` is only named in them.
absl::StatusOr<FleetdConfig> ParseFleetdConfig(absl::string_view text, absl::string_view file);
// A file to begin with: every key with what it means.
std::string ExampleFleetdToml();

}  // namespace cw::fleet
