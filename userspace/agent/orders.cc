// SPDX-License-Identifier: Apache-2.0
// What operators ask for: handed to the loop, done by the part that it is for.
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/events_file.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/flows/steering.h"
#include "userspace/agent/label_orders.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/reloader.h"
#include "userspace/agent/scopes.h"

namespace cw::agent {

namespace v1 = api::v1;

void Agent::Tell(const api::ApiEvent& event) {
  Log({.type = event.type,
       .severity = event.alert ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
       .text = event.text,
       .evidence = event.evidence});
}

absl::StatusOr<v1::ActionReply> Agent::SteerSet(const v1::SteerSetRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return steering_->Set(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::SteerClear(const v1::SteerClearRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return steering_->Clear(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::SteerLock(const v1::SteerLockRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return steering_->Lock(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::Drain(const v1::DrainRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return draining_->Begin(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::Undrain(const v1::UndrainRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return draining_->End(caller, request); });
}

absl::StatusOr<v1::DrainsReply> Agent::Drains(const v1::DrainsRequest&, const api::Caller&) {
  return loop_->Call<v1::DrainsReply>([this] { return absl::StatusOr<v1::DrainsReply>(draining_->All()); });
}

absl::StatusOr<v1::ActionReply> Agent::Label(const v1::LabelRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>(
      [this, caller, request] { return SetLabel(*labels_, journal_, caller, request); });
}

absl::StatusOr<v1::LabelsReply> Agent::Labels(const v1::LabelsRequest&, const api::Caller&) {
  return loop_->Call<v1::LabelsReply>([this] { return absl::StatusOr<v1::LabelsReply>(ListLabels(*labels_)); });
}

absl::StatusOr<v1::ActionReply> Agent::BreakerReset(const v1::BreakerResetRequest&, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>(
      [this, caller] { return absl::StatusOr<v1::ActionReply>(breaker_->Reset(caller)); });
}

absl::StatusOr<v1::ActionReply> Agent::SetMode(const v1::SetModeRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] {
    const bool narrow = !request.nic().empty() || request.has_rail() || !request.label().empty();
    if (!narrow) return modes_->Set(caller, request);
    absl::StatusOr<v1::ActionReply> reply = scopes_->Set(caller, request);
    if (reply.ok()) scopes_->Step(MonotonicNs());  // from the next packet on
    return reply;
  });
}

absl::StatusOr<v1::ActionReply> Agent::Off(const v1::OffRequest& request, const api::Caller& caller) {
  // At once, whatever the loop is doing.
  const Allowed was = modes_->SwitchOff();
  return loop_->Call<v1::ActionReply>([this, caller, request, was] {
    return absl::StatusOr<v1::ActionReply>(modes_->Change(caller, was, Mode::kOff, request.for_s()));
  });
}

absl::Status Agent::ReopenEvents() { return events_file_->Open(); }

absl::StatusOr<config::Config> Agent::Reload(const config::Config& fresh) {
  return loop_->Call<config::Config>([this, fresh] { return reloader_->Take(fresh); });
}

}  // namespace cw::agent
