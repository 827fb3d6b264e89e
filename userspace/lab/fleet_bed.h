// SPDX-License-Identifier: Apache-2.0
//
// A real cwfleetd for a lab, with certificates for all hosts: it serves on host 0, which the others reach by the
// management network, and is asked through cwctl, as an operator would. It ends with the object; its folder stays.
//
// Errors are Status. Thread rule: one thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/config/config.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/fabric_process.h"

namespace cw::lab {

struct FleetBedSpec {
  std::string folder;  // is there, empty, and for this alone
  int hosts = 2;
  std::string store;                                 // folder of its database; "" = this one
  std::string fabric_file;                           // its text; "" = none
  std::string more_config;                           // further lines of cwfleetd.toml
  std::string fleetd = "cwfleetd", cwctl = "cwctl";  // paths, or names to look for beside this program and in PATH
};

// What an operator of this lab would write down: its switches by name, leaves with their racks (rack0, …), and each
// cable between them as it was built.
std::string FabricFileOf(const FabricSpec& spec);

class FleetBed {
 public:
  // Writes the certificates and the configuration, before agents start.
  static absl::StatusOr<std::unique_ptr<FleetBed>> Make(const FleetBedSpec& spec);
  ~FleetBed();

  void Configure(int host, config::Config& config) const;  // the agent's [fleet]
  absl::Status Start(const Fabric& fabric);                // and again, after Kill or End
  absl::Status Kill();                                     // by SIGKILL
  absl::Status End();                                      // DeadlineExceeded: it does not end when it is asked to

  const std::string& folder() const { return spec_.folder; }
  std::vector<std::string> OnHost0(std::vector<std::string> argv) const;
  // cwctl's command line for this verb, on host 0; `user`: alice, who may read, or root0, who is an admin.
  std::vector<std::string> Cwctl(const std::vector<std::string>& verb, const std::string& user = "alice") const;
  absl::StatusOr<std::string> Run(const std::vector<std::string>& verb, const std::string& user = "alice") const;
  // With --json. What fails is {"error": …}.
  nlohmann::json Ask(const std::vector<std::string>& verb, const std::string& user = "alice") const;
  // All hosts are connected and have told of living paths.
  bool AllThere() const;
  std::string Log() const;

  using Seen = std::multiset<std::pair<uint64_t, std::string>>;  // number and text of events
  Seen Written(const Fabric& fabric, int host) const;            // into the agents' own file, all runs
  Seen Stored(int host) const;                                   // as the service answers

 private:
  explicit FleetBed(FleetBedSpec spec) : spec_(std::move(spec)) {}
  absl::Status MakeCertificates() const;

  FleetBedSpec spec_;
  std::string netns_;  // of host 0
  ProcessId process_;
};

}  // namespace cw::lab
