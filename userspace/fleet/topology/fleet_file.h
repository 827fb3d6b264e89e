// SPDX-License-Identifier: Apache-2.0
//
// fleet.toml: what only people know of a fabric. All of it may be left out; what is there is believed before what
// traces suggest. Pure; any thread.
//
//   [[switch]]            # name, and optionally rack, rail and addresses of ports and of the switch itself
//   name = "leaf1"
//   addresses = ["10.1.0.1", "10.1.0.3"]
//   [[cable]]             # what comes in at this port's address ought to come from that switch
//   from = "spine1"
//   to = "10.1.0.1"
//   [[nic]]               # a host's NIC and the leaf that it ought to be plugged into
//   address = "10.0.0.1"
//   leaf = "leaf1"
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

struct PlannedSwitch {
  std::string name, rack, rail;
  std::vector<Addr> addresses;
};
struct PlannedCable {
  std::string from;  // a switch's name
  Addr to;           // the port where the cable ends
};
struct PlannedNic {
  Addr address;
  std::string leaf;  // a switch's name
};
struct FleetFile {
  std::vector<PlannedSwitch> switches;
  std::vector<PlannedCable> cables;
  std::vector<PlannedNic> nics;
};

// InvalidArgument: all faults, each with file, line and column. `file` is only named in them.
absl::StatusOr<FleetFile> ReadFleetFile(absl::string_view text, absl::string_view file);

}  // namespace cw::fleet
