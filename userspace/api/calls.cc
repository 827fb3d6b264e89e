// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/calls.h"

#include <cmath>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "userspace/api/flow_ref.h"
#include "userspace/api/path_ref.h"
#include "userspace/model/steady.h"

namespace cw::api {
namespace {

constexpr absl::Duration kFollowTick = absl::Milliseconds(200), kAskAgain = absl::Seconds(1);

absl::Status CheckDuration(double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError("for_s must be a finite number of seconds, 0 or more");
}

bool IsSteered(const v1::Flow& flow) {
  if (flow.received()) return false;
  return flow.udp_port() != flow.udp_port_native() || flow.lock() != v1::LOCK_NONE || flow.want_slot() >= 0 ||
         flow.manual();
}

absl::Status CheckWindow(uint32_t window_s) {
  if (window_s == 1 || window_s == 10 || window_s == 60) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("window_s is %u; windows are 1, 10 and 60 seconds", window_s));
}

void KeepWindow(uint32_t window_s, v1::Path& path) {
  google::protobuf::RepeatedPtrField<v1::PathWindow> kept;
  for (v1::PathWindow& window : *path.mutable_windows()) {
    if (window.seconds() == window_s) kept.Add()->Swap(&window);
  }
  path.mutable_windows()->Swap(&kept);
}

}  // namespace

#define CW_PASS_ON(name, Request, Reply, role)                                                 \
  absl::StatusOr<v1::Reply> PassedOn::name(const v1::Request& request, const Caller& caller) { \
    return to_.name(request, caller);                                                          \
  }
CW_VERBS(CW_PASS_ON)

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both sides number their codes alike (google.rpc.Code).
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::StatusOr<v1::StatusReply> Calls::Status(const v1::StatusRequest& request, const Caller& caller) {
  absl::StatusOr<v1::StatusReply> reply = view_.Status(request, caller);
  if (!reply.ok()) return reply;
  v1::CallerStatus& you = *reply->mutable_caller();
  you.set_name(caller.name);
  you.set_role(std::string(RoleName(caller.role)));
  you.set_via(caller.via);
  return reply;
}

absl::StatusOr<v1::PathsReply> Calls::Paths(const v1::PathsRequest& request, const Caller& caller) {
  absl::StatusOr<v1::PathsReply> paths = view_.Paths(request, caller);
  if (paths.ok() && paths->pairs().empty()) {
    if (absl::Status status = CheckRemote(request.remote()); !status.ok()) return status;
  }
  return paths;
}

absl::StatusOr<v1::QpsReply> Calls::Qps(const v1::QpsRequest& request, const Caller& caller) {
  v1::QpsRequest resolved = request;
  if (absl::Status status = ResolveInPlace(resolved.mutable_flow()); !status.ok()) return status;
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(resolved, caller);
  if (qps.ok() && qps->flows().empty()) {
    if (absl::Status status = CheckRemote(request.remote()); !status.ok()) return status;
  }
  return qps;
}

absl::StatusOr<v1::OwdReply> Calls::Owd(const v1::OwdRequest& request, const Caller&) {
  const uint32_t window_s = request.window_s() == 0 ? 10 : request.window_s();
  if (absl::Status status = CheckWindow(window_s); !status.ok()) return status;
  v1::PathsRequest paths_request;
  paths_request.set_remote(request.remote());
  absl::StatusOr<v1::PathsReply> paths = view_.Paths(paths_request);
  if (!paths.ok()) return paths.status();
  v1::QpsRequest qps_request;
  qps_request.set_remote(request.remote());
  qps_request.set_received(true);
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(qps_request);
  if (!qps.ok()) return qps.status();
  if (paths->pairs().empty() && qps->flows().empty()) {
    if (absl::Status status = CheckRemote(request.remote()); !status.ok()) return status;
  }

  v1::OwdReply reply;
  reply.set_window_s(window_s);
  reply.mutable_pairs()->Swap(paths->mutable_pairs());
  reply.mutable_flows()->Swap(qps->mutable_flows());
  for (v1::Pair& pair : *reply.mutable_pairs()) {
    for (v1::Path& path : *pair.mutable_paths()) KeepWindow(window_s, path);
  }
  return reply;
}

absl::StatusOr<v1::LinksReply> Calls::Links(const v1::LinksRequest& request, const Caller& caller) {
  v1::LinksRequest whole = request;
  if (whole.window_s() == 0) whole.set_window_s(10);
  if (absl::Status status = CheckWindow(whole.window_s()); !status.ok()) return status;
  return view_.Links(whole, caller);
}

grpc::Status Calls::Events(grpc::ServerContext* context, const v1::EventsRequest& request,
                           grpc::ServerWriter<v1::Event>& writer, const std::string& caller,
                           const std::function<absl::Status()>& still_may) {
  if (absl::Status status = readers_.Take(context, caller); !status.ok()) return ToGrpc(status);
  const absl::Cleanup leave = [&] { readers_.Leave(context); };
  if (request.follow()) return ToGrpc(Follow(context, request, writer, still_may));
  absl::StatusOr<std::vector<v1::Event>> events = view_.Events(request, absl::ZeroDuration());
  if (!events.ok()) return ToGrpc(events.status());
  for (const v1::Event& event : *events) {
    if (!readers_.Write(context, writer, event)) break;
  }
  return grpc::Status::OK;
}

absl::StatusOr<v1::SteerShowReply> Calls::SteerShow(const v1::SteerShowRequest& request, const Caller&) {
  v1::QpsRequest qps_request;
  qps_request.set_flow(request.flow());
  if (absl::Status status = ResolveInPlace(qps_request.mutable_flow()); !status.ok()) return status;
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(qps_request);
  if (!qps.ok()) return qps.status();
  absl::StatusOr<v1::StatusReply> agent = view_.Status();
  if (!agent.ok()) return agent.status();
  v1::SteerShowReply reply;
  reply.set_mode(agent->mode());
  for (v1::Flow& flow : *qps->mutable_flows()) {
    if (!request.flow().empty() || IsSteered(flow)) reply.add_flows()->Swap(&flow);
  }
  return reply;
}

absl::StatusOr<v1::ActionReply> Calls::SteerSet(const v1::SteerSetRequest& request, const Caller& caller) {
  if (absl::Status status = CheckDuration(request.for_s()); !status.ok()) return status;
  if (request.target_case() == v1::SteerSetRequest::TARGET_NOT_SET) {
    return absl::InvalidArgumentError("no target; give a path, a port, or native");
  }
  if (request.target_case() == v1::SteerSetRequest::kPort && (request.port() == 0 || request.port() > 65535)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("port %u is no UDP port; give one from 1 to 65535", request.port()));
  }
  v1::SteerSetRequest resolved = request;
  if (absl::Status status = ResolveNeeded(resolved.mutable_flow()); !status.ok()) return status;
  return view_.SteerSet(resolved, caller);
}

absl::StatusOr<v1::ActionReply> Calls::SteerClear(const v1::SteerClearRequest& request, const Caller& caller) {
  v1::SteerClearRequest resolved = request;
  if (request.all() != request.flow().empty()) {
    return absl::InvalidArgumentError("give either a flow or all");
  }
  if (absl::Status status = ResolveInPlace(resolved.mutable_flow()); !status.ok()) return status;
  return view_.SteerClear(resolved, caller);
}

absl::StatusOr<v1::ActionReply> Calls::SteerLock(const v1::SteerLockRequest& request, const Caller& caller) {
  if (absl::Status status = CheckDuration(request.for_s()); !status.ok()) return status;
  if (!v1::Lock_IsValid(request.lock())) return absl::InvalidArgumentError("unknown kind of lock");
  v1::SteerLockRequest resolved = request;
  if (absl::Status status = ResolveNeeded(resolved.mutable_flow()); !status.ok()) return status;
  return view_.SteerLock(resolved, caller);
}

absl::StatusOr<v1::ActionReply> Calls::Drain(const v1::DrainRequest& request, const Caller& caller) {
  if (absl::Status status = CheckDuration(request.for_s()); !status.ok()) return status;
  if (!v1::DrainKind_IsValid(request.kind()) || request.kind() == v1::DRAIN_KIND_UNSPECIFIED)
    return absl::InvalidArgumentError("unknown kind; choose path, link, spine or nic");
  if (request.what().empty()) return absl::InvalidArgumentError("nothing to drain was named");
  return view_.Drain(request, caller);
}

absl::StatusOr<v1::ActionReply> Calls::Undrain(const v1::UndrainRequest& request, const Caller& caller) {
  if (request.all() != request.what().empty())
    return absl::InvalidArgumentError("name what was drained, or all; see cwctl drain list");
  return view_.Undrain(request, caller);
}

absl::StatusOr<v1::ActionReply> Calls::Label(const v1::LabelRequest& request, const Caller& caller) {
  if (request.pid() != 0 && !request.cgroup().empty())
    return absl::InvalidArgumentError("a label is of a process or of a control group, not of both");
  if (request.pid() == 0 && request.cgroup().empty() && !request.label().empty())
    return absl::InvalidArgumentError("whose label? Give a process or a control group");
  return view_.Label(request, caller);
}

absl::StatusOr<v1::ActionReply> Calls::SetMode(const v1::SetModeRequest& request, const Caller& caller) {
  if (absl::Status status = CheckDuration(request.for_s()); !status.ok()) return status;
  for (const v1::CapabilityAllow& each : request.allowed()) {
    if (!v1::Allow_IsValid(each.allow()))
      return absl::InvalidArgumentError("unknown permission; choose mode, off, observe or act");
  }
  const bool unchanged = request.mode() == v1::MODE_UNSPECIFIED && !request.allowed().empty();
  if (!unchanged && (!v1::Mode_IsValid(request.mode()) || request.mode() == v1::MODE_UNSPECIFIED)) {
    return absl::InvalidArgumentError("unknown mode; choose observe, protect, optimize or off");
  }
  return view_.SetMode(request, caller);
}

absl::StatusOr<v1::ActionReply> Calls::Off(const v1::OffRequest& request, const Caller& caller) {
  if (absl::Status status = CheckDuration(request.for_s()); !status.ok()) return status;
  return view_.Off(request, caller);
}

// Nothing of a peer that does not exist would look like a peer at rest. "" stands for all.
absl::Status Calls::CheckRemote(const std::string& remote) {
  if (remote.empty()) return absl::OkStatus();
  absl::StatusOr<v1::PathsReply> all = view_.Paths(v1::PathsRequest());
  return all.ok() ? CheckPeer(*all, remote) : all.status();
}

// Replaces what a person typed by the flow's id; "" stays.
absl::Status Calls::ResolveInPlace(std::string* flow) {
  if (flow->empty()) return absl::OkStatus();
  v1::QpsRequest all;
  all.set_received(true);
  absl::StatusOr<v1::QpsReply> flows = view_.Qps(all);
  if (!flows.ok()) return flows.status();
  absl::StatusOr<std::string> id = ResolveFlow(*flows, *flow);
  if (!id.ok()) return id.status();
  *flow = *std::move(id);
  return absl::OkStatus();
}

absl::Status Calls::ResolveNeeded(std::string* flow) {
  if (flow->empty()) return absl::InvalidArgumentError("no flow given");
  return ResolveInPlace(flow);
}

absl::Status Calls::Follow(grpc::ServerContext* context, const v1::EventsRequest& request,
                           grpc::ServerWriter<v1::Event>& writer, const std::function<absl::Status()>& still_may) {
  v1::EventsRequest next = request;
  absl::Duration wait = absl::ZeroDuration();
  absl::Time asked = SteadyNow();
  while (!stopping_ && !context->IsCancelled()) {
    absl::StatusOr<std::vector<v1::Event>> events = view_.Events(next, wait);
    if (!events.ok()) return events.status();
    for (const v1::Event& event : *events) {
      next.set_after_seq(event.seq());
      if (!readers_.Write(context, writer, event)) return absl::OkStatus();
    }
    next.set_last(0);
    wait = kFollowTick;
    if (SteadyNow() - asked < kAskAgain) continue;
    asked = SteadyNow();
    if (absl::Status may = still_may(); !may.ok()) return may;
  }
  return stopping_ ? absl::UnavailableError("the agent is stopping") : absl::OkStatus();
}

}  // namespace cw::api
