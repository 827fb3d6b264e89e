// SPDX-License-Identifier: Apache-2.0
//
// What is in force of the configuration: when it was read, its fingerprint, and what waits for the next start. Told in
// an event when it is read again, and in status. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/agent/event_sink.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/config/change.h"
#include "userspace/config/config.h"

namespace cw::agent {

class ConfigInForce {
 public:
  explicit ConfigInForce(EventSink& events) : events_(events) {}

  void Begin(const config::Config& config, int64_t now_ns);
  // It was read again, with these changes, of which those that are live were taken.
  void Reloaded(const config::Config& config, const std::vector<config::Change>& changes, int64_t now_ns);
  // What of it could not be taken, after Reloaded: a table or key. It waits for the next reload, or a start.
  void NotTaken(const std::string& key, const absl::Status& why);
  void AddTo(::cwfabric::v1::StatusReply& reply, int64_t now_ns) const;

 private:
  EventSink& events_;
  int64_t loaded_ns_ = 0;
  std::string fingerprint_;
  std::vector<std::string> waiting_;  // keys
};

}  // namespace cw::agent
