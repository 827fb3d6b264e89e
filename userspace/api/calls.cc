// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/calls.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "userspace/api/flow_ref.h"
#include "userspace/api/path_ref.h"

namespace cw::api {
namespace {

constexpr int kMaxFollowers = 8;  // each holds a thread
constexpr absl::Duration kFollowTick = absl::Milliseconds(200);

template <typename Reply>
grpc::Status Put(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) return ToGrpc(result.status());
  reply->Swap(&*result);
  return grpc::Status::OK;
}

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

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both sides number their codes alike (google.rpc.Code).
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status Calls::Status(const Caller& caller, const v1::StatusRequest*, v1::StatusReply* reply) {
  grpc::Status status = Put(view_.Status(), reply);
  v1::CallerStatus& you = *reply->mutable_caller();
  you.set_name(caller.name);
  you.set_role(std::string(RoleName(caller.role)));
  you.set_via(caller.via);
  return status;
}

grpc::Status Calls::Doctor(const Caller&, const v1::DoctorRequest*, v1::DoctorReply* reply) {
  return Put(view_.Doctor(), reply);
}

grpc::Status Calls::Counters(const Caller&, const v1::CountersRequest*, v1::CountersReply* reply) {
  return Put(view_.Counters(), reply);
}

grpc::Status Calls::Clock(const Caller&, const v1::ClockRequest*, v1::ClockReply* reply) {
  return Put(view_.Clock(), reply);
}

grpc::Status Calls::Paths(const Caller&, const v1::PathsRequest* request, v1::PathsReply* reply) {
  absl::StatusOr<v1::PathsReply> paths = view_.Paths(*request);
  if (paths.ok() && paths->pairs().empty()) {
    if (absl::Status status = CheckRemote(request->remote()); !status.ok()) return ToGrpc(status);
  }
  return Put(std::move(paths), reply);
}

grpc::Status Calls::Qps(const Caller&, const v1::QpsRequest* request, v1::QpsReply* reply) {
  v1::QpsRequest resolved = *request;
  if (absl::Status status = ResolveInPlace(resolved.mutable_flow()); !status.ok()) return ToGrpc(status);
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(resolved);
  if (qps.ok() && qps->flows().empty()) {
    if (absl::Status status = CheckRemote(request->remote()); !status.ok()) return ToGrpc(status);
  }
  return Put(std::move(qps), reply);
}

grpc::Status Calls::Owd(const Caller&, const v1::OwdRequest* request, v1::OwdReply* reply) {
  const uint32_t window_s = request->window_s() == 0 ? 10 : request->window_s();
  if (absl::Status status = CheckWindow(window_s); !status.ok()) return ToGrpc(status);
  v1::PathsRequest paths_request;
  paths_request.set_remote(request->remote());
  absl::StatusOr<v1::PathsReply> paths = view_.Paths(paths_request);
  if (!paths.ok()) return ToGrpc(paths.status());
  v1::QpsRequest qps_request;
  qps_request.set_remote(request->remote());
  qps_request.set_received(true);
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(qps_request);
  if (!qps.ok()) return ToGrpc(qps.status());
  if (paths->pairs().empty() && qps->flows().empty()) {
    if (absl::Status status = CheckRemote(request->remote()); !status.ok()) return ToGrpc(status);
  }

  reply->set_window_s(window_s);
  reply->mutable_pairs()->Swap(paths->mutable_pairs());
  reply->mutable_flows()->Swap(qps->mutable_flows());
  for (v1::Pair& pair : *reply->mutable_pairs()) {
    for (v1::Path& path : *pair.mutable_paths()) KeepWindow(window_s, path);
  }
  return grpc::Status::OK;
}

grpc::Status Calls::Links(const Caller&, const v1::LinksRequest* request, v1::LinksReply* reply) {
  const uint32_t window_s = request->window_s() == 0 ? 10 : request->window_s();
  if (absl::Status status = CheckWindow(window_s); !status.ok()) return ToGrpc(status);
  return Put(view_.Links(window_s), reply);
}

grpc::Status Calls::Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                           grpc::ServerWriter<v1::Event>* writer) {
  if (!request->follow()) {
    absl::StatusOr<std::vector<v1::Event>> events = view_.Events(*request, absl::ZeroDuration());
    if (!events.ok()) return ToGrpc(events.status());
    for (const v1::Event& event : *events) {
      if (!writer->Write(event)) break;
    }
    return grpc::Status::OK;
  }
  if (followers_.fetch_add(1) >= kMaxFollowers) {
    followers_.fetch_sub(1);
    return ToGrpc(absl::ResourceExhaustedError(
        absl::StrFormat("%d clients follow events already; end one of them", kMaxFollowers)));
  }
  grpc::Status status = Follow(*context, *request, *writer);
  followers_.fetch_sub(1);
  return status;
}

grpc::Status Calls::SteerShow(const Caller&, const v1::SteerShowRequest* request, v1::SteerShowReply* reply) {
  v1::QpsRequest qps_request;
  qps_request.set_flow(request->flow());
  if (absl::Status status = ResolveInPlace(qps_request.mutable_flow()); !status.ok()) return ToGrpc(status);
  absl::StatusOr<v1::QpsReply> qps = view_.Qps(qps_request);
  if (!qps.ok()) return ToGrpc(qps.status());
  absl::StatusOr<v1::StatusReply> agent = view_.Status();
  if (!agent.ok()) return ToGrpc(agent.status());
  reply->set_mode(agent->mode());
  for (v1::Flow& flow : *qps->mutable_flows()) {
    if (!request->flow().empty() || IsSteered(flow)) reply->add_flows()->Swap(&flow);
  }
  return grpc::Status::OK;
}

grpc::Status Calls::SteerSet(const Caller& caller, const v1::SteerSetRequest* request, v1::ActionReply* reply) {
  if (absl::Status status = CheckDuration(request->for_s()); !status.ok()) return ToGrpc(status);
  if (request->target_case() == v1::SteerSetRequest::TARGET_NOT_SET) {
    return ToGrpc(absl::InvalidArgumentError("no target; give a path, a port, or native"));
  }
  if (request->target_case() == v1::SteerSetRequest::kPort && (request->port() == 0 || request->port() > 65535)) {
    return ToGrpc(absl::InvalidArgumentError(
        absl::StrFormat("port %u is no UDP port; give one from 1 to 65535", request->port())));
  }
  v1::SteerSetRequest resolved = *request;
  if (absl::Status status = ResolveNeeded(resolved.mutable_flow()); !status.ok()) return ToGrpc(status);
  return Put(view_.SteerSet(caller, resolved), reply);
}

grpc::Status Calls::SteerClear(const Caller& caller, const v1::SteerClearRequest* request, v1::ActionReply* reply) {
  v1::SteerClearRequest resolved = *request;
  if (request->all() != request->flow().empty()) {
    return ToGrpc(absl::InvalidArgumentError("give either a flow or all"));
  }
  if (absl::Status status = ResolveInPlace(resolved.mutable_flow()); !status.ok()) return ToGrpc(status);
  return Put(view_.SteerClear(caller, resolved), reply);
}

grpc::Status Calls::SteerLock(const Caller& caller, const v1::SteerLockRequest* request, v1::ActionReply* reply) {
  if (absl::Status status = CheckDuration(request->for_s()); !status.ok()) return ToGrpc(status);
  if (!v1::Lock_IsValid(request->lock())) return ToGrpc(absl::InvalidArgumentError("unknown kind of lock"));
  v1::SteerLockRequest resolved = *request;
  if (absl::Status status = ResolveNeeded(resolved.mutable_flow()); !status.ok()) return ToGrpc(status);
  return Put(view_.SteerLock(caller, resolved), reply);
}

grpc::Status Calls::Why(const Caller&, const v1::WhyRequest* request, v1::WhyReply* reply) {
  // Both may hold a '/': a NIC is not a peer, so the peers are asked first.
  absl::StatusOr<v1::PathsReply> paths = view_.Paths(v1::PathsRequest());
  if (!paths.ok()) return ToGrpc(paths.status());
  const absl::StatusOr<PathRef> path = ResolvePath(*paths, request->what());
  if (path.ok()) return Put(view_.WhyPath(path->pair, path->slot), reply);
  if (!absl::IsUnimplemented(path.status())) return ToGrpc(path.status());
  std::string flow = request->what();
  if (absl::Status status = ResolveNeeded(&flow); !status.ok()) return ToGrpc(status);
  return Put(view_.WhyFlow(flow), reply);
}

grpc::Status Calls::Drain(const Caller& caller, const v1::DrainRequest* request, v1::ActionReply* reply) {
  if (absl::Status status = CheckDuration(request->for_s()); !status.ok()) return ToGrpc(status);
  if (!v1::DrainKind_IsValid(request->kind()) || request->kind() == v1::DRAIN_KIND_UNSPECIFIED)
    return ToGrpc(absl::InvalidArgumentError("unknown kind; choose path, link, spine or nic"));
  if (request->what().empty()) return ToGrpc(absl::InvalidArgumentError("nothing to drain was named"));
  return Put(view_.Drain(caller, *request), reply);
}

grpc::Status Calls::Undrain(const Caller& caller, const v1::UndrainRequest* request, v1::ActionReply* reply) {
  if (request->all() != request->what().empty())
    return ToGrpc(absl::InvalidArgumentError("name what was drained, or all; see cwctl drain list"));
  return Put(view_.Undrain(caller, *request), reply);
}

grpc::Status Calls::Drains(const Caller&, const v1::DrainsRequest*, v1::DrainsReply* reply) {
  return Put(view_.Drains(), reply);
}

grpc::Status Calls::Nics(const Caller&, const v1::NicsRequest*, v1::NicsReply* reply) {
  return Put(view_.Nics(), reply);
}

grpc::Status Calls::Label(const Caller& caller, const v1::LabelRequest* request, v1::ActionReply* reply) {
  if (request->pid() != 0 && !request->cgroup().empty())
    return ToGrpc(absl::InvalidArgumentError("a label is of a process or of a control group, not of both"));
  if (request->pid() == 0 && request->cgroup().empty() && !request->label().empty())
    return ToGrpc(absl::InvalidArgumentError("whose label? Give a process or a control group"));
  return Put(view_.SetLabel(caller, *request), reply);
}

grpc::Status Calls::Labels(const Caller&, const v1::LabelsRequest*, v1::LabelsReply* reply) {
  return Put(view_.Labels(), reply);
}

grpc::Status Calls::SetMode(const Caller& caller, const v1::SetModeRequest* request, v1::ActionReply* reply) {
  if (absl::Status status = CheckDuration(request->for_s()); !status.ok()) return ToGrpc(status);
  for (const v1::CapabilityAllow& each : request->allowed()) {
    if (!v1::Allow_IsValid(each.allow()))
      return ToGrpc(absl::InvalidArgumentError("unknown permission; choose mode, off, observe or act"));
  }
  const bool unchanged = request->mode() == v1::MODE_UNSPECIFIED && !request->allowed().empty();
  if (!unchanged && (!v1::Mode_IsValid(request->mode()) || request->mode() == v1::MODE_UNSPECIFIED)) {
    return ToGrpc(absl::InvalidArgumentError("unknown mode; choose observe, protect, optimize or off"));
  }
  return Put(view_.SetMode(caller, *request), reply);
}

grpc::Status Calls::ListJobs(const Caller&, const v1::ListJobsRequest* request, v1::ListJobsReply* reply) {
  return Put(view_.ListJobs(*request), reply);
}

grpc::Status Calls::ListCollectives(const Caller&, const v1::ListCollectivesRequest* request,
                                    v1::ListCollectivesReply* reply) {
  return Put(view_.ListCollectives(*request), reply);
}

grpc::Status Calls::Off(const Caller& caller, const v1::OffRequest* request, v1::ActionReply* reply) {
  if (absl::Status status = CheckDuration(request->for_s()); !status.ok()) return ToGrpc(status);
  return Put(view_.Off(caller, *request), reply);
}

grpc::Status Calls::BreakerReset(const Caller& caller, const v1::BreakerResetRequest*, v1::ActionReply* reply) {
  return Put(view_.BreakerReset(caller), reply);
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

grpc::Status Calls::Follow(grpc::ServerContext& context, const v1::EventsRequest& request,
                           grpc::ServerWriter<v1::Event>& writer) {
  v1::EventsRequest next = request;
  absl::Duration wait = absl::ZeroDuration();
  while (!stopping_ && !context.IsCancelled()) {
    absl::StatusOr<std::vector<v1::Event>> events = view_.Events(next, wait);
    if (!events.ok()) return ToGrpc(events.status());
    for (const v1::Event& event : *events) {
      next.set_after_seq(event.seq());
      if (!writer.Write(event)) return grpc::Status::OK;
    }
    next.set_last(0);
    wait = kFollowTick;
  }
  if (stopping_) return ToGrpc(absl::UnavailableError("the agent is stopping"));
  return grpc::Status::OK;
}

}  // namespace cw::api
