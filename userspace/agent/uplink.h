// SPDX-License-Identifier: Apache-2.0
//
// What this host tells the fleet service: every 10 s its paths, at once its events. A thread of its own collects, as
// any client of the agent would, and puts it into the spool; uplink::Client brings it to the service.
//
// Threads: one makes and destroys it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "userspace/config/config.h"

namespace cw::agent {

class Agent;

class Uplink {
 public:
  // `agent` outlives it. told: events up to this one of the agent's were told by an uplink before. Errors: the spool's;
  // a host name that is none.
  static absl::StatusOr<std::unique_ptr<Uplink>> Start(const config::Config& config, Agent& agent, uint64_t told);
  // Ends it: what there is to tell is in the spool. The newest event that is.
  uint64_t End();
  // After the agent's Run: the last events are in the spool then.
  ~Uplink();

 private:
  struct Impl;
  explicit Uplink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Where no service is configured any more: what one ordered is given back. Waits for the agent's loop, so not from it.
void GiveBackFleetDrains(const config::Config& config, Agent& agent);

}  // namespace cw::agent
