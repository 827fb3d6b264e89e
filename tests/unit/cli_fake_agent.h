// SPDX-License-Identifier: Apache-2.0
//
// An agent with known data behind the real server, for tests of cwctl and the API.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "userspace/api/agent_view.h"

namespace cw::api {

class FakeAgent final : public AgentView {
 public:
  FakeAgent();

  absl::StatusOr<v1::StatusReply> Status() override;
  absl::StatusOr<v1::DoctorReply> Doctor() override { return doctor; }
  absl::StatusOr<v1::PathsReply> Paths(const v1::PathsRequest& request) override;
  absl::StatusOr<v1::LinksReply> Links(uint32_t window_s) override;
  absl::StatusOr<v1::QpsReply> Qps(const v1::QpsRequest& request) override;
  absl::StatusOr<v1::CountersReply> Counters() override;
  absl::StatusOr<v1::ClockReply> Clock() override;
  absl::StatusOr<std::vector<v1::Event>> Events(const v1::EventsRequest& request, absl::Duration wait) override;
  absl::StatusOr<v1::ActionReply> SteerSet(const Caller& caller, const v1::SteerSetRequest& request) override;
  absl::StatusOr<v1::ActionReply> SteerClear(const Caller& caller, const v1::SteerClearRequest& request) override;
  absl::StatusOr<v1::ActionReply> SteerLock(const Caller& caller, const v1::SteerLockRequest& request) override;
  absl::StatusOr<v1::WhyReply> WhyFlow(const std::string& id) override;
  absl::StatusOr<v1::WhyReply> WhyPath(uint32_t pair, uint32_t slot) override;
  absl::StatusOr<v1::ActionReply> Drain(const Caller& caller, const v1::DrainRequest& request) override;
  absl::StatusOr<v1::ActionReply> Undrain(const Caller& caller, const v1::UndrainRequest& request) override;
  absl::StatusOr<v1::DrainsReply> Drains() override;
  absl::StatusOr<v1::NicsReply> Nics() override;
  absl::StatusOr<v1::ActionReply> SetLabel(const Caller& caller, const v1::LabelRequest& request) override;
  absl::StatusOr<v1::LabelsReply> Labels() override;
  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) override;
  absl::StatusOr<v1::ListCollectivesReply> ListCollectives(const v1::ListCollectivesRequest& request) override;
  absl::StatusOr<v1::ActionReply> SetMode(const Caller& caller, const v1::SetModeRequest& request) override;
  absl::StatusOr<v1::ActionReply> BreakerReset(const Caller& caller) override;
  void Tell(const ApiEvent& event) override;
  absl::StatusOr<v1::ActionReply> Off(const Caller& caller, const v1::OffRequest& request) override;

  void Add(const std::string& text);  // an event
  std::vector<ApiEvent> Told();       // by the server so far

  // Requests as they arrived, in text form; read only when no call is under way.
  std::string last_request;
  Caller last_caller;  // of an act
  v1::DoctorReply doctor;
  v1::Mode mode = v1::MODE_PROTECT;
  bool balance_acts = false;
  bool breaker_tripped = false;
  std::string report_file;
  bool clock_known = true;      // false: fleet time is refused
  bool off_sticks = false;      // true: flows stay where they were, whatever the mode
  bool frozen_in_off = false;   // Off takes 3 s
  int rounds_until_silent = 2;  // of Drains

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::Event> events_;
  std::vector<ApiEvent> told_;
  uint64_t asked_ = 0;  // packets grow with each look at the flows
};

}  // namespace cw::api
