// SPDX-License-Identifier: Apache-2.0
//
// Where others find this host's fleet time: the page for processes (libcwclock) and the pinned map for BPF programs
// (maps/clock_abi.h). Thread rule: one thread (the agent's loop).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/clock_abi.h"
#include "maps/unique_fd.h"
#include "userspace/agent/clock.h"
#include "userspace/model/clock.h"
#include "userspace/publish/publisher.h"

namespace cw::agent {

class ClockOutput {
 public:
  struct Options {
    std::string page;                    // "" = no page
    std::string pin;                     // of the map
    std::shared_ptr<const Clock> clock;  // local time
  };
  // Adopts the map that an earlier agent pinned.
  static absl::StatusOr<std::unique_ptr<ClockOutput>> Create(const Options& options);
  ~ClockOutput();
  ClockOutput(const ClockOutput&) = delete;
  ClockOutput& operator=(const ClockOutput&) = delete;

  // Before each round: the machine slept or was moved since the last call.
  bool Disrupted() { return publisher_->Poll() != publish::Disruption::kNone; }
  // After each round. An error concerns the page alone.
  absl::Status Publish(const FleetClock& clock, bool has_anchor);

 private:
  ClockOutput(std::unique_ptr<publish::Publisher> publisher, maps::UniqueFd map, cw_fleet_clock* record)
      : publisher_(std::move(publisher)), map_(std::move(map)), record_(record) {}

  std::unique_ptr<publish::Publisher> publisher_;
  maps::UniqueFd map_;
  cw_fleet_clock* record_;  // mapped
};

}  // namespace cw::agent
