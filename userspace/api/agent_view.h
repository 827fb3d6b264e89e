// SPDX-License-Identifier: Apache-2.0
//
// What the API server asks of the agent. The agent implements it; the server turns gRPC calls into these.
//
// The server has done this before a call arrives here: flows named in a request are replaced by their ids (QpsRequest,
// SteerSet, SteerClear, SteerLock), windows are defaulted, durations are ≥ 0, modes and locks are known values.
// The caller may do what it asks for: that was looked at, too. Whoever acts is named in the events.
// Owd, SteerShow and the follow mode of Events are made by the server from Paths, Qps and Events.
//
// Thread rule: calls come from several server threads at once. None may block longer than a few milliseconds, except
// Events, which may wait as long as `wait` says.
// Errors: NotFound (no such flow, path, peer), FailedPrecondition (not in this mode; path dead), Unimplemented (not on
// this host), InvalidArgument. The message reaches the user as it is: say what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/evidence.h"

namespace cw::api {

namespace v1 = ::cwfabric::v1;

// What the server has to tell: acts of callers (audit), certificates that were changed or are about to expire (api).
struct ApiEvent {
  std::string type;
  bool alert = false;
  std::string text;  // one sentence
  Evidence evidence;
};

class AgentView {
 public:
  virtual ~AgentView() = default;

  virtual absl::StatusOr<v1::StatusReply> Status() = 0;
  virtual absl::StatusOr<v1::DoctorReply> Doctor() = 0;
  virtual absl::StatusOr<v1::PathsReply> Paths(const v1::PathsRequest& request) = 0;
  virtual absl::StatusOr<v1::LinksReply> Links(uint32_t window_s) = 0;  // 1, 10 or 60
  virtual absl::StatusOr<v1::QpsReply> Qps(const v1::QpsRequest& request) = 0;
  virtual absl::StatusOr<v1::CountersReply> Counters() = 0;
  virtual absl::StatusOr<v1::ClockReply> Clock() { return absl::UnimplementedError("no fleet clock here"); }

  // Kept events with seq > after_seq, oldest first, those that pass request.type and request.match; ignore follow.
  // request.last > 0 together with after_seq = 0: only the last so many. With none, waits up to `wait` for one
  // (returns empty after it, or earlier).
  virtual absl::StatusOr<std::vector<v1::Event>> Events(const v1::EventsRequest& request, absl::Duration wait) = 0;

  virtual absl::StatusOr<v1::ActionReply> SteerSet(const Caller& caller, const v1::SteerSetRequest& request) = 0;
  virtual absl::StatusOr<v1::ActionReply> SteerClear(const Caller& caller, const v1::SteerClearRequest& request) = 0;
  virtual absl::StatusOr<v1::ActionReply> SteerLock(const Caller& caller, const v1::SteerLockRequest& request) = 0;
  // A flow by its id; a path by its pair's index (Pair.index) and slot.
  virtual absl::StatusOr<v1::WhyReply> WhyFlow(const std::string&) { return absl::UnimplementedError("no why here"); }
  virtual absl::StatusOr<v1::WhyReply> WhyPath(uint32_t, uint32_t) { return absl::UnimplementedError("no why here"); }

  virtual absl::StatusOr<v1::ActionReply> Drain(const Caller&, const v1::DrainRequest&) {
    return absl::UnimplementedError("no drain here");
  }
  virtual absl::StatusOr<v1::ActionReply> Undrain(const Caller&, const v1::UndrainRequest&) {
    return absl::UnimplementedError("no drain here");
  }
  virtual absl::StatusOr<v1::DrainsReply> Drains() { return absl::UnimplementedError("no drain here"); }

  // Communicators and collectives of the processes of this host that carry the NCCL profiler plug-in.
  virtual absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest&) {
    return absl::UnimplementedError("no jobs here");
  }
  virtual absl::StatusOr<v1::ListCollectivesReply> ListCollectives(const v1::ListCollectivesRequest&) {
    return absl::UnimplementedError("no collectives here");
  }

  // RDMA devices of this host, from its file trees and from the devices: may take some ten milliseconds.
  virtual absl::StatusOr<v1::NicsReply> Nics() {
    return absl::UnimplementedError("no RDMA devices are looked at here");
  }

  virtual absl::StatusOr<v1::ActionReply> SetLabel(const Caller&, const v1::LabelRequest&) {
    return absl::UnimplementedError("no labels here");
  }
  virtual absl::StatusOr<v1::LabelsReply> Labels() { return absl::UnimplementedError("no labels here"); }

  virtual absl::StatusOr<v1::ActionReply> SetMode(const Caller& caller, const v1::SetModeRequest& request) = 0;
  // Every flow native within 1 s. Must work in every state of the agent.
  virtual absl::StatusOr<v1::ActionReply> Off(const Caller& caller, const v1::OffRequest& request) = 0;
  virtual absl::StatusOr<v1::ActionReply> BreakerReset(const Caller&) {
    return absl::UnimplementedError("no breaker here");
  }

  // Must not wait for the agent's own thread.
  virtual void Tell(const ApiEvent&) {}
};

}  // namespace cw::api
