// SPDX-License-Identifier: Apache-2.0
// What operators ask for: placements, locks, modes; each says what changed and how to undo it.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/placement.h"
#include "userspace/model/counted.h"

namespace cw::agent {

namespace v1 = api::v1;

void Agent::Tell(const api::ApiEvent& event) {
  Log({.type = event.type,
       .severity = event.alert ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
       .text = event.text,
       .evidence = event.evidence});
}

absl::StatusOr<FlowKey> Agent::FindFlow(const std::string& id) const {
  for (const auto& [key, flow] : flows_.sent) {
    if (key.Id().ToString() == id) return key;
  }
  return absl::NotFoundError(absl::StrCat("no sent flow ", id, "; see cwctl qps"));
}

absl::Status Agent::Place(const FlowKey& key, uint8_t slot, uint16_t port, bool force, bool* pending) {
  *pending = false;
  // A slot of its own is needed for a wish; the kernel makes it at the first moment that keeps order.
  if (slot != CW_SLOT_NONE && !force) {
    *pending = true;
    return dataplane_->flow_editor().Want(ToMap(key), slot, port, false);
  }
  if (slot != CW_SLOT_NONE) return dataplane_->flow_editor().Want(ToMap(key), slot, port, true);
  return dataplane_->flow_editor().Place(ToMap(key), slot, port);
}

// Where an operator wants the flow, if it can be there.
absl::StatusOr<Agent::SteerTarget> Agent::TargetOf(const v1::SteerSetRequest& request, const Addr& peer,
                                                   const cw_tx_flow& flow) {
  const probe::SlotTable& slots = engine_->mesh().slots(flow.pair);
  SteerTarget to;
  if (request.has_native()) {
    to.slot = flow.native_slot;
    to.text = absl::StrCat("its native port ", flow.flow.sport);
  } else if (request.has_path()) {
    if (request.path() >= CW_MAX_SLOTS || slots.port(static_cast<uint8_t>(request.path())) == 0)
      return absl::NotFoundError(
          absl::StrCat("no path ", request.path(), " to ", peer_names_.Of(peer), "; see cwctl paths"));
    to.slot = static_cast<uint8_t>(request.path());
    to.port = slots.port(to.slot);
    to.text = absl::StrFormat("path %d, udp-port %d", to.slot, to.port);
  } else {
    if (request.port() == 0 || request.port() > 65535) return absl::InvalidArgumentError("a UDP port is 1-65535");
    to.port = static_cast<uint16_t>(request.port());
    to.slot = slots.SlotOfPort(to.port).value_or(CW_SLOT_NONE);
    to.text = absl::StrCat("udp-port ", to.port);
  }
  if (to.slot == CW_SLOT_NONE) return to;
  if (probe::Load(dataplane_->pairs()[flow.pair].slot[to.slot].state) == CW_SLOT_DEAD)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is dead; see cwctl paths", to.slot));
  const PairState* pair = FindPair(flow.pair);
  if (pair != nullptr && (pair->drained >> to.slot & 1) != 0)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is drained; see cwctl drain list", to.slot));
  return to;
}

absl::StatusOr<v1::ActionReply> Agent::DoSteerSet(const api::Caller& caller, const v1::SteerSetRequest& request) {
  absl::StatusOr<FlowKey> key = FindFlow(request.flow());
  const std::optional<rdma::QpInfo> owned = key.ok() ? std::nullopt : FindOwned(request.flow());
  if (!key.ok() && !owned) return key.status();
  if (!modes_->ActsAtAll()) {
    return absl::FailedPreconditionError(absl::StrCat("the mode is ", modes_->allowed().ToString(),
                                                      ", in which nothing is moved; first: cwctl mode protect"));
  }
  if (owned) return SteerOwned(caller, request, *owned);
  if (request.lag_port() != 0)
    return absl::FailedPreconditionError(
        "its packets pass the kernel; a port of a bond is its owner's library's to choose");
  const FlowEntry& flow = flows_.sent[*key];
  if ((flow.tx.flags & CW_STEER_HARD_LOCKED) != 0)
    return absl::FailedPreconditionError("the flow is locked hard; first: cwctl steer lock --none " + request.flow());
  if (FindPair(flow.tx.pair) == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat(peer_names_.Of(key->dst), " is no longer a peer; its flows are not steered"));
  const absl::StatusOr<SteerTarget> target = TargetOf(request, key->dst, flow.tx);
  if (!target.ok()) return target.status();
  const cw_tx_flow before = flow.tx;
  const bool there = IsOn(before, {.slot = target->slot, .port = target->port});
  RememberPlace(*key, before);
  bool pending = false;
  // A wish for the path that it is on would never come true; one for another path must not.
  const absl::Status placed = there ? dataplane_->flow_editor().Want(ToMap(*key), CW_SLOT_NONE, 0, false)
                                    : Place(*key, target->slot, target->port, request.force(), &pending);
  if (!placed.ok()) return placed;
  if (absl::Status status = dataplane_->flow_editor().SetFlags(ToMap(*key), CW_STEER_MANUAL, 0); !status.ok())
    return status;
  Reread(*key);
  deadlines_.SetPlacement(*key, EndNs(request.for_s(), MonotonicNs()));
  modes_->KeepDeadlines();
  v1::ActionReply reply;
  const bool same = there && (before.flags & CW_STEER_MANUAL) != 0 && before.want_slot == CW_SLOT_NONE;
  const uint16_t port_now = before.port != 0 ? before.port : before.flow.sport;  // another may lead to the same path
  const std::string where =
      there && request.has_path() ? absl::StrFormat("path %d, udp-port %d", target->slot, port_now) : target->text;
  reply.set_effect(there ? absl::StrFormat("flow %s is on %s already, and stays there", request.flow(), where)
                         : absl::StrFormat("flow %s goes to %s%s", request.flow(), where,
                                           pending ? " at the next pause or moment without packets in flight" : ""));
  if (!same) reply.set_undo(UndoOfSet(before, request.flow()));
  reply.set_pending(pending);
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  journal_.LogAct(caller, {.type = "steer",
                           .text = reply.effect(),
                           .flow = request.flow(),
                           .peer = peer_names_.Of(key->dst),
                           .to_slot = target->slot == CW_SLOT_NONE ? -1 : target->slot});
  return reply;
}

void Agent::RememberPlace(const FlowKey& key, const cw_tx_flow& before) {
  deadlines_.ForgetPlacesUnless([this](const FlowKey& flow) {
    const auto found = flows_.sent.find(flow);
    return found != flows_.sent.end() && (found->second.tx.flags & CW_STEER_MANUAL) != 0;
  });
  deadlines_.RememberPlace(key, PresentPlace(before));
}

// Whoever asks next sees what was just set.
void Agent::Reread(const FlowKey& key) {
  absl::StatusOr<cw_tx_flow> record = dataplane_->tx_flows().Lookup(ToMap(key));
  auto flow = flows_.sent.find(key);
  if (record.ok() && flow != flows_.sent.end()) flow->second.tx = *record;
}

// A wish that came true by another way is taken back, so that it does not move the flow later, nor bar balance from it.
void Agent::DropMetWishes() {
  const auto met = [](const cw_tx_flow& flow) {
    return flow.want_slot != CW_SLOT_NONE && PendingSlot(flow) == CW_SLOT_NONE;
  };
  for (auto& [key, flow] : flows_.sent) {
    if (!met(flow.tx)) continue;
    Reread(key);  // it may have another wish by now
    if (met(flow.tx)) (void)dataplane_->flow_editor().Want(ToMap(key), CW_SLOT_NONE, 0, false);
  }
}

void Agent::RevertPlacement(const FlowKey& key) {
  const std::optional<Deadlines::Place> before = deadlines_.TakePlace(key);
  auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end()) return RevertOwned(key);
  const cw_tx_flow& tx = flow->second.tx;
  if ((tx.flags & CW_STEER_MANUAL) == 0) return;
  const bool has_paths = FindPair(tx.pair) != nullptr;  // its peer may have left the configuration
  const Deadlines::Place to = PlaceAfter(
      has_paths ? before : std::nullopt, tx.native_slot,
      [&](uint16_t port) { return engine_->mesh().slots(tx.pair).SlotOfPort(port); },
      [&](uint8_t slot) { return probe::Load(dataplane_->pairs()[tx.pair].slot[slot].state) == CW_SLOT_DEAD; });
  (void)dataplane_->flow_editor().SetFlags(ToMap(key), 0, CW_STEER_MANUAL);
  bool pending = false;
  if (tx.port == to.port) {
    (void)dataplane_->flow_editor().Want(ToMap(key), CW_SLOT_NONE, 0, false);
  } else {
    (void)Place(key, to.slot, to.port, false, &pending);
  }
  Reread(key);
  Log({.type = "steer",
       .text = absl::StrCat("flow ", key.Id().ToString(), " goes back to ",
                            to.port == 0 ? "its native port" : absl::StrCat("path ", to.slot, ", where it was"),
                            ", and is the agent's again"),
       .flow = key.Id().ToString()});
}

void Agent::RevertLock(const FlowKey& key) {
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end() || (flow->second.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED)) == 0) return;
  (void)dataplane_->flow_editor().SetFlags(ToMap(key), 0, CW_STEER_LOCKED | CW_STEER_HARD_LOCKED);
  Reread(key);
  Log({.type = "steer",
       .text = absl::StrCat("flow ", key.Id().ToString(), " may be moved again"),
       .flow = key.Id().ToString()});
}

absl::StatusOr<v1::ActionReply> Agent::DoSteerClear(const api::Caller& caller, const v1::SteerClearRequest& request) {
  std::vector<FlowKey> chosen;
  if (request.all()) {
    for (const auto& [key, flow] : flows_.sent) {
      if ((flow.tx.flags & (CW_STEER_MANUAL | CW_STEER_LOCKED | CW_STEER_HARD_LOCKED)) != 0) chosen.push_back(key);
    }
    for (const rdma::QpInfo& qp : qps_.All()) {
      if (owner_mover_->book().Of(qp).manual) chosen.push_back(rdma::SentFlow(qp));
    }
  } else {
    absl::StatusOr<FlowKey> key = FindFlow(request.flow());
    const std::optional<rdma::QpInfo> owned = key.ok() ? std::nullopt : FindOwned(request.flow());
    if (!key.ok() && !owned) return key.status();
    chosen.push_back(owned ? rdma::SentFlow(*owned) : *key);
  }
  v1::ActionReply reply;
  const auto held = [&](const FlowKey& key) {
    const auto flow = flows_.sent.find(key);
    return flow == flows_.sent.end() ||
           (flow->second.tx.flags & (CW_STEER_MANUAL | CW_STEER_LOCKED | CW_STEER_HARD_LOCKED)) != 0;
  };
  const bool was_its_own = chosen.size() == 1 && !held(chosen[0]);
  for (const FlowKey& key : chosen) {
    deadlines_.SetPlacement(key, 0);
    deadlines_.SetLock(key, 0);
    RevertPlacement(key);
    RevertLock(key);
    reply.add_flows(key.Id().ToString());
  }
  modes_->KeepDeadlines();
  reply.set_effect(was_its_own ? absl::StrCat("flow ", request.flow(), " was the agent's already")
                               : absl::StrCat(Counted(chosen.size(), "flow"), chosen.size() == 1 ? " is" : " are",
                                              " the agent's again"));
  journal_.LogAct(caller, {.type = "steer", .text = reply.effect()});
  return reply;
}

absl::StatusOr<v1::ActionReply> Agent::DoSteerLock(const api::Caller& caller, const v1::SteerLockRequest& request) {
  absl::StatusOr<FlowKey> key = FindFlow(request.flow());
  if (!key.ok()) return key.status();
  uint8_t set = 0;
  std::string effect = absl::StrCat("flow ", request.flow(), " may be moved again");
  if (request.lock() == v1::LOCK_SOFT) {
    set = CW_STEER_LOCKED;
    effect = absl::StrCat("flow ", request.flow(), " is moved only off a dead path");
  } else if (request.lock() == v1::LOCK_HARD) {
    set = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED;
    effect = absl::StrCat("flow ", request.flow(), " is never moved, not even off a dead path");
  }
  const uint8_t flags_before = flows_.sent[*key].tx.flags;
  if (absl::Status status =
          dataplane_->flow_editor().SetFlags(ToMap(*key), set, CW_STEER_LOCKED | CW_STEER_HARD_LOCKED);
      !status.ok())
    return status;
  Reread(*key);
  deadlines_.SetLock(*key, set != 0 ? EndNs(request.for_s(), MonotonicNs()) : 0);
  modes_->KeepDeadlines();
  v1::ActionReply reply;
  reply.set_effect(effect);
  reply.set_undo(UndoOfLock(flags_before, set, request.flow()));
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  journal_.LogAct(caller, {.type = "steer", .text = effect, .flow = request.flow()});
  return reply;
}

// What the agent before us was asked to end, and what became due while there was none.
absl::Status Agent::AdoptDeadlines() {
  const absl::Status loaded = deadlines_.Load();
  if (absl::IsInvalidArgument(loaded))
    spdlog::warn("what an earlier agent was to end is lost: {}", std::string(loaded.message()));
  if (!dataplane_->adopted()) deadlines_.Forget();  // what they were about is gone
  modes_->AdoptEnd();
  if (deadlines_.size() > 0) {
    Log({.type = "agent",
         .text =
             absl::StrFormat("%d placements, locks or modes of before the restart end in time", deadlines_.size())});
    ReadFlows();
  }
  RunDeadlines();
  return absl::OkStatus();
}

void Agent::RunDeadlines() {
  const Deadlines::Due due = deadlines_.TakeDue(MonotonicNs());
  modes_->KeepDeadlines();  // first: what is due is done once, whatever comes of it
  for (const FlowKey& flow : due.placements) RevertPlacement(flow);
  for (const FlowKey& flow : due.locks) RevertLock(flow);
  if (due.mode) modes_->Due(*due.mode);
  modes_->KeepDeadlines();
}

absl::StatusOr<v1::ActionReply> Agent::SteerSet(const v1::SteerSetRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoSteerSet(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::SteerClear(const v1::SteerClearRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoSteerClear(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::SteerLock(const v1::SteerLockRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoSteerLock(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::BreakerReset(const v1::BreakerResetRequest&, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>(
      [this, caller] { return absl::StatusOr<v1::ActionReply>(breaker_->Reset(caller)); });
}

absl::StatusOr<v1::ActionReply> Agent::SetMode(const v1::SetModeRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return modes_->Set(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::Off(const v1::OffRequest& request, const api::Caller& caller) {
  // At once, whatever the loop is doing.
  const Allowed was = modes_->SwitchOff();
  return loop_->Call<v1::ActionReply>([this, caller, request, was] {
    return absl::StatusOr<v1::ActionReply>(modes_->Change(caller, was, Mode::kOff, request.for_s()));
  });
}

}  // namespace cw::agent
