// SPDX-License-Identifier: Apache-2.0
//
// `cwlab demo-fleet`: eight hosts in two racks, a real agent on each, one cwfleetd. Four faults in turn, and what the
// service finds: where, why, whom it concerns, and after how long.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/lab/report.h"

namespace cw::lab {

struct FleetDemoSpec {
  std::string out = "build/demo";  // fleet.json is written here; fleet/ has the service's files
  int hosts_per_rack = 4, spines = 4;
};

struct FleetDemoCase {
  std::string name;        // "spine_dead", …
  std::string what;        // was done, a sentence
  nlohmann::json finding;  // as cwctl has it; null: none came
  double seconds = 0;      // from the fault (the last of nine, where it flaps) until cwctl shows the finding
  std::string others;      // further findings that began meanwhile, which are wrong; "" = none
};

struct FleetDemo {
  std::vector<FleetDemoCase> cases;
  size_t events = 0, events_lost = 0, events_twice = 0;  // of the agents' own logs, against what the service has
  std::string before, now;                               // the topology: command and answer
};

// Says on the standard error what it is doing, and writes fleet.json. A finding that does not come is no error.
absl::StatusOr<FleetDemo> RunFleetDemo(const FleetDemoSpec& spec);

Table FleetDemoTable(const FleetDemo& demo);
// Each finding with its evidence, for a terminal.
std::string FleetDemoText(const FleetDemo& demo);
// None when each fault has its one finding and no event is lost; else what is wrong.
absl::Status JudgeFleetDemo(const FleetDemo& demo);

}  // namespace cw::lab
