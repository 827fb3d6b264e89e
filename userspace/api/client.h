// SPDX-License-Identifier: Apache-2.0
//
// A client of an agent, over its socket or over TCP with mutual TLS. One call at a time and object. Unavailable: no
// agent answers; PermissionDenied: the socket may not be opened, the certificate is not taken, or the call needs
// another role; all else comes from the agent as it is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/tls/certificate.h"

namespace cw::api {

namespace v1 = ::cwfabric::v1;

struct RemoteAgent {
  std::string server;  // HOST:PORT, the host as the agent's certificate has it
  tls::Files tls;      // the client's own certificate and key, and the authority of agents
};

class Client {
 public:
  // Does not connect yet: the first call does. `timeout` holds for each call but Events.
  explicit Client(const std::string& socket_path, absl::Duration timeout = absl::Seconds(5));
  explicit Client(const RemoteAgent& agent, absl::Duration timeout = absl::Seconds(5));
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<v1::StatusReply> Status();
  absl::StatusOr<v1::DoctorReply> Doctor();
  absl::StatusOr<v1::PathsReply> Paths(const v1::PathsRequest& request);
  absl::StatusOr<v1::LinksReply> Links(const v1::LinksRequest& request);
  absl::StatusOr<v1::QpsReply> Qps(const v1::QpsRequest& request);
  absl::StatusOr<v1::OwdReply> Owd(const v1::OwdRequest& request);
  absl::StatusOr<v1::CountersReply> Counters();
  absl::StatusOr<v1::ClockReply> Clock();
  absl::StatusOr<v1::SteerShowReply> SteerShow(const v1::SteerShowRequest& request);
  absl::StatusOr<v1::ActionReply> SteerSet(const v1::SteerSetRequest& request);
  absl::StatusOr<v1::ActionReply> SteerClear(const v1::SteerClearRequest& request);
  absl::StatusOr<v1::ActionReply> SteerLock(const v1::SteerLockRequest& request);
  absl::StatusOr<v1::WhyReply> Why(const v1::WhyRequest& request);
  absl::StatusOr<v1::ActionReply> Drain(const v1::DrainRequest& request);
  absl::StatusOr<v1::ActionReply> Undrain(const v1::UndrainRequest& request);
  absl::StatusOr<v1::DrainsReply> Drains();
  absl::StatusOr<v1::ActionReply> SetMode(const v1::SetModeRequest& request);
  absl::StatusOr<v1::ActionReply> Off(const v1::OffRequest& request);
  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::ListCollectivesReply> ListCollectives(const v1::ListCollectivesRequest& request);
  absl::StatusOr<v1::ActionReply> BreakerReset();
  absl::StatusOr<v1::NicsReply> Nics();
  absl::StatusOr<v1::ActionReply> Label(const v1::LabelRequest& request);
  absl::StatusOr<v1::LabelsReply> Labels();
  // Calls back for each event until the stream ends or the callback returns false. Unavailable when the agent goes.
  absl::Status Events(const v1::EventsRequest& request, const std::function<bool(const v1::Event&)>& each);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::api
