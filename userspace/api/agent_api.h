// SPDX-License-Identifier: Apache-2.0
//
// The agent as its callers see it: one method for each verb of verbs.h, the same in the agent, behind a socket (Client)
// and with requests checked (Calls).
//
// Errors: NotFound (no such flow, path, peer), FailedPrecondition (not in this mode; path dead), Unimplemented (not on
// this host), InvalidArgument. The message reaches the user as it is: say what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/api/verbs.h"
#include "userspace/model/evidence.h"

namespace cw::api {

namespace v1 = ::cwfabric::v1;

// For each verb: `absl::StatusOr<v1::Reply> Verb(const v1::Request& request, const Caller& caller)`, Unimplemented
// where it is not overridden; and the same without a caller, for reading. The caller may do what it asks for: that was
// looked at. Whoever acts is named in the events.
class AgentApi {
 public:
  virtual ~AgentApi() = default;

#define CW_API_VERB(name, Request, Reply, role)                                    \
  virtual absl::StatusOr<v1::Reply> name(const v1::Request&, const Caller&) {      \
    return absl::UnimplementedError(absl::StrCat("there is no ", #name, " here")); \
  }                                                                                \
  absl::StatusOr<v1::Reply> name(const v1::Request& request = {}) { return name(request, {}); }
  CW_VERBS(CW_API_VERB)
#undef CW_API_VERB
};

// In a class derived from AgentApi: CW_VERBS(CW_OVERRIDE_VERB) declares all of them, and lets them be called without a
// caller, too.
#define CW_OVERRIDE_VERB(name, Request, Reply, role)                                                                  \
  using AgentApi::name;                                                                                               \
  absl::StatusOr<::cwfabric::v1::Reply> name(const ::cwfabric::v1::Request& request, const ::cw::api::Caller& caller) \
      override;

// What the server has to tell: acts of callers (audit), certificates that were changed or are about to expire (api).
struct ApiEvent {
  std::string type;
  bool alert = false;
  std::string text;  // one sentence
  Evidence evidence;
};

// What the server asks of the agent, besides the verbs. It has done this before a call arrives here: flows named in a
// request are replaced by their ids (QpsRequest, SteerSet, SteerClear, SteerLock), windows are defaulted, durations are
// ≥ 0, modes and locks are known values. Owd, SteerShow and the follow mode of Events it makes of Paths, Qps and
// Events.
//
// Thread rule: calls come from several server threads at once. None may block longer than a few milliseconds, except
// Events, which may wait as long as `wait` says, and Nics, which asks devices and may take some ten milliseconds.
class AgentView : public AgentApi {
 public:
  // Kept events with seq > after_seq, oldest first, those that pass request.type and request.match; ignore follow.
  // request.last > 0 together with after_seq = 0: only the last so many. With none, waits up to `wait` for one
  // (returns empty after it, or earlier).
  virtual absl::StatusOr<std::vector<v1::Event>> Events(const v1::EventsRequest& request, absl::Duration wait) = 0;
  // Must not wait for the agent's own thread.
  virtual void Tell(const ApiEvent&) {}
};

}  // namespace cw::api
