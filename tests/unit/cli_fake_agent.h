// SPDX-License-Identifier: Apache-2.0
//
// An agent with known data behind the real server, for tests of cwctl and the API.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "userspace/api/agent_api.h"

namespace cw::api {

class FakeAgent final : public AgentView {
 public:
  FakeAgent();

  CW_AGENT_VERBS(CW_OVERRIDE_VERB)
  absl::StatusOr<std::vector<v1::Event>> Events(const v1::EventsRequest& request, absl::Duration wait) override;
  void Tell(const ApiEvent& event) override;

  void Add(const std::string& text);  // an event
  std::vector<ApiEvent> Told();       // by the server so far

  // Requests as they arrived, in text form; read only when no call is under way.
  std::string last_request;
  Caller last_caller;  // of an act
  v1::DoctorReply doctor;
  v1::Mode mode = v1::MODE_PROTECT;
  bool balance_acts = false;
  bool breaker_tripped = false;
  std::vector<v1::ModeScope> scopes;       // of status
  std::optional<v1::ProberStatus> prober;  // of status
  std::string version = "0.1.0";
  std::string report_file;
  bool clock_known = true;                // false: fleet time is refused
  bool off_sticks = false;                // true: flows stay where they were, whatever the mode
  bool frozen_in_off = false;             // Off takes 3 s
  int rounds_until_silent = 2;            // of Drains
  std::atomic<int> asked_for_events = 0;  // how often; any thread

 private:
  v1::WhyReply WhyFlow(const std::string& id);
  v1::WhyReply WhyPath(uint32_t pair, uint32_t slot);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::Event> events_;
  std::vector<ApiEvent> told_;
  uint64_t asked_ = 0;  // packets grow with each look at the flows
};

}  // namespace cw::api
