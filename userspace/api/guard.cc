// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/guard.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace cw::api {
namespace {

// Of what people typed, none of which is long.
std::string TextOf(const google::protobuf::Message& request) { return request.ShortDebugString(); }

}  // namespace

absl::Status Gate::Admit(const Caller& caller, absl::string_view method, const std::string& request) {
  const MethodRole* wanted = FindMethod(method);
  if (wanted != nullptr && caller.role != Role::kNone && caller.role >= wanted->least) return absl::OkStatus();
  const std::string why = wanted == nullptr ? std::string("nobody may call it: it stands in no table of roles")
                                            : absl::StrFormat(
                                                  "%s needs the role %s, and %s has the role %s; see [api] in "
                                                  "the agent's configuration",
                                                  method, RoleName(wanted->least), caller.name, RoleName(caller.role));
  Refuse(caller, method, request, why);
  return absl::PermissionDeniedError(why);
}

void Gate::Done(const Caller& caller, absl::string_view method, const std::string& request,
                const absl::Status& result) {
  const MethodRole* role = FindMethod(method);
  if (role == nullptr || !role->changes()) return;
  // What fails again and again must wash nothing away.
  if (!result.ok() && !limiter_.Tell(caller.name, absl::Now())) return;
  view_.Tell(CallMade(caller, method, request, result));
  Keep(ActOf(caller, method, request, result));
}

void Gate::TurnedAway(const Caller& caller, const std::string& why) { Refuse(caller, "connect", "", why); }

void Gate::Refuse(const Caller& caller, absl::string_view method, const std::string& request, const std::string& why) {
  const std::optional<uint64_t> untold = limiter_.Tell(caller.name, absl::Now());
  if (!untold) return;
  view_.Tell(CallRefused(caller, method, request, why, *untold));
  Keep(ActOf(caller, method, request, absl::PermissionDeniedError(why)));
}

// That it cannot be kept is told once, and the act is done all the same: a full disk must not keep people from `off`.
void Gate::Keep(const acts::Act& act) {
  const std::string fault = acts_.Append(act, absl::GetCurrentTimeNanos());
  if (acts_failed_.exchange(!fault.empty()) == !fault.empty()) return;
  view_.Tell({.type = "api",
              .alert = !fault.empty(),
              .text = fault.empty() ? "who changes what is kept again" : "who changes what is not kept: " + fault,
              .evidence = {}});
}

// A user of this host is not who has a certificate of the same name.
std::string GuardedService::CountedAs(const Caller& caller) {
  return absl::StrCat(caller.name, absl::StartsWith(caller.via, "uid ") ? ", user" : ", certificate");
}

absl::StatusOr<Caller> GuardedService::Enter(const grpc::ServerContextBase& context, const char* method,
                                             const google::protobuf::Message& request) {
  absl::StatusOr<Caller> caller = identify_(context);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = gate_.Admit(*caller, method, TextOf(request)); !status.ok()) return status;
  return caller;
}

grpc::Status GuardedService::Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                                    grpc::ServerWriter<v1::Event>* writer) {
  const absl::StatusOr<Caller> caller = Enter(*context, "Events", *request);
  if (!caller.ok()) return ToGrpc(caller.status());
  const auto still_may = [&] { return identify_(*context).status(); };
  return calls_.Events(context, *request, *writer, caller->name, still_may);
}

}  // namespace cw::api
