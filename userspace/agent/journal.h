// SPDX-License-Identifier: Apache-2.0
//
// The agent's events: kept for those who ask, written into their file and to the log. Any thread
// (telemetry/event_log.h).
#pragma once

#include <functional>
#include <utility>

#include "userspace/agent/event_sink.h"
#include "userspace/api/caller.h"
#include "userspace/telemetry/event_log.h"

namespace cw::agent {

class Journal final : public EventSink {
 public:
  // Besides keeping it, each event goes to `write`, which may be empty.
  explicit Journal(std::function<void(const telemetry::Event&)> write) : write_(std::move(write)) {}

  void Log(telemetry::Event event) override;
  // What somebody asked for, with who that was; the agent's own doing (no name) stands by itself.
  void LogAct(const api::Caller& caller, telemetry::Event event);

  telemetry::EventLog& log() { return log_; }
  const telemetry::EventLog& log() const { return log_; }

 private:
  std::function<void(const telemetry::Event&)> write_;
  telemetry::EventLog log_;
};

}  // namespace cw::agent
