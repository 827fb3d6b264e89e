// SPDX-License-Identifier: Apache-2.0
//
// Where others find this host's fleet time: the page for processes (libcwclock), the pinned map for BPF programs
// (maps/clock_abi.h), and chronyd's reference clock. Thread rule: one thread (the agent's loop).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/clock_abi.h"
#include "maps/unique_fd.h"
#include "userspace/agent/fleet_clock/clock.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"
#include "userspace/publish/publisher.h"

namespace cw::agent {

class ClockOutput {
 public:
  struct Options {
    std::string page;                    // "" = no page
    std::string pin;                     // of the map
    std::shared_ptr<const Clock> clock;  // local time
    std::optional<int> tai_minus_utc;    // s; nullopt: by the system's list
    config::ChronyConfig chrony;
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

  bool feeds_chrony() const { return feeds_chrony_; }
  // Of the newest sample; see Publisher.
  const absl::Status& chrony_status() const { return publisher_->chrony_status(); }
  const absl::Status& chrony_error() const { return publisher_->chrony_error(); }
  uint64_t chrony_samples() const { return publisher_->chrony_samples(); }

 private:
  ClockOutput(std::unique_ptr<publish::Publisher> publisher, maps::UniqueFd map, cw_fleet_clock* record,
              bool feeds_chrony)
      : publisher_(std::move(publisher)), map_(std::move(map)), record_(record), feeds_chrony_(feeds_chrony) {}

  std::unique_ptr<publish::Publisher> publisher_;
  maps::UniqueFd map_;
  cw_fleet_clock* record_;  // mapped
  bool feeds_chrony_;
};

}  // namespace cw::agent
