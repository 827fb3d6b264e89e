// SPDX-License-Identifier: Apache-2.0
//
// A client of the fleet service's incidents. One call at a time and object. Errors as client.h's; Unimplemented: the
// service is too old to take any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/client.h"
#include "userspace/api/incident.pb.h"

namespace cw::api {

class IncidentClient {
 public:
  explicit IncidentClient(const RemoteAgent& fleet, absl::Duration timeout);
  ~IncidentClient();

  absl::StatusOr<v1::Incident> Take(const v1::IncidentTakeRequest& request);
  absl::StatusOr<v1::IncidentListReply> List();
  // The file, piece by piece; false ends it. It may take ten times as long as other calls: 512 MiB come over slow
  // lines.
  absl::Status Fetch(const std::string& id, const std::function<bool(const std::string&)>& piece);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::api
