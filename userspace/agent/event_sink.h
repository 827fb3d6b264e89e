// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of the agent tell what happened: one sentence and its evidence (telemetry/event_log.h). The sink sets
// time and sequence. Thread rule: the agent's loop.
#pragma once

#include "userspace/telemetry/event_log.h"

namespace cw::agent {

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void Log(telemetry::Event event) = 0;
};

}  // namespace cw::agent
