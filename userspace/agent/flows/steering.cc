// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/steering.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/placement.h"
#include "userspace/model/counted.h"

namespace cw::agent {

absl::StatusOr<Steering::Found> Steering::Find(const std::string& id) const {
  for (Mover* mover : movers_) {
    if (const std::optional<FlowKey> key = mover->Find(id); key) return Found{mover, *key};
  }
  return absl::NotFoundError(absl::StrCat("no sent flow ", id, "; see cwctl qps"));
}

std::set<FlowKey> Steering::ByHand(bool locked_too) const {
  std::set<FlowKey> all;
  for (const Mover* mover : movers_) {
    for (const FlowKey& key : mover->ByHand(locked_too)) all.insert(key);
  }
  return all;
}

// Where an operator wants the flow, if it can be there.
absl::StatusOr<SteerTarget> Steering::TargetOf(const v1::SteerSetRequest& request, const Found& flow) const {
  SteerTarget to;
  if (request.has_native()) {
    to = flow.mover->Native(flow.key);
  } else if (request.has_path()) {
    const std::optional<uint32_t> index = mesh_.Find({flow.key.src, flow.key.dst});
    to.by_path = true;
    to.slot = static_cast<uint8_t>(std::min<uint32_t>(request.path(), CW_SLOT_NONE));
    to.port = index && to.slot < CW_MAX_SLOTS ? mesh_.slots(*index).port(to.slot) : uint16_t{0};
    if (to.port == 0)
      return absl::NotFoundError(
          absl::StrCat("no path ", request.path(), " to ", names_.Of(flow.key.dst), "; see cwctl paths"));
    to.text = absl::StrFormat("path %d, udp-port %d", to.slot, to.port);
  } else if (request.has_port()) {
    to.port = static_cast<uint16_t>(request.port());
    to.slot = flow.mover->SlotOfPort(flow.key, to.port);
    to.text = absl::StrCat("udp-port ", to.port);
  } else if (request.lag_port() != 0) {
    to.places = false;
  } else {
    return absl::InvalidArgumentError("say where to: a path, a UDP port, its native port or a port of its bond");
  }
  to.lag_port = static_cast<uint8_t>(request.lag_port());
  if (absl::Status status = Usable(flow, to.slot); !status.ok()) return status;
  return to;
}

absl::Status Steering::Usable(const Found& flow, uint8_t slot) const {
  const std::optional<uint32_t> index = mesh_.Find({flow.key.src, flow.key.dst});
  if (!index || slot >= CW_MAX_SLOTS) return absl::OkStatus();
  if (probe::Load(mesh_.shared(*index)->slot[slot].state) == CW_SLOT_DEAD)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is dead; see cwctl paths", slot));
  const PairState* pair = FindIn(pairs_, *index);
  if (pair != nullptr && (pair->drained >> slot & 1) != 0)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is drained; see cwctl drain list", slot));
  return absl::OkStatus();
}

absl::StatusOr<v1::ActionReply> Steering::Set(const api::Caller& caller, const v1::SteerSetRequest& request) {
  const absl::StatusOr<Found> flow = Find(request.flow());
  if (!flow.ok()) return flow.status();
  if (!modes_.ActsAtAll()) {
    return absl::FailedPreconditionError(absl::StrCat("the mode is ", modes_.allowed().ToString(),
                                                      ", in which nothing is moved; first: cwctl mode protect"));
  }
  const uint32_t pair = mesh_.Find({flow->key.src, flow->key.dst}).value_or(CW_PAIR_NONE);
  if (const Allowed there = modes_.may()(pair, flow->key); !there.ActsAtAll()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a scope of its NIC or its job lets nothing move it; see cwctl why ", request.flow()));
  }
  if (absl::Status status = flow->mover->MayPlace(flow->key, request); !status.ok()) return status;
  const absl::StatusOr<SteerTarget> target = TargetOf(request, *flow);
  if (!target.ok()) return target.status();
  const std::set<FlowKey> by_hand = ByHand(/*locked_too=*/false);
  deadlines_.ForgetPlacesUnless([&](const FlowKey& key) { return by_hand.contains(key); });
  const absl::StatusOr<Mover::Placed> placed = flow->mover->PlaceByHand(flow->key, *target, request.force());
  if (!placed.ok()) return placed.status();
  if (placed->before) deadlines_.RememberPlace(flow->key, *placed->before);
  if (target->places) deadlines_.SetPlacement(flow->key, EndNs(request.for_s(), monotonic_.NowNs()));
  modes_.KeepDeadlines();
  v1::ActionReply reply;
  reply.set_effect(placed->effect);
  reply.set_undo(placed->undo);
  reply.set_pending(placed->pending);
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  journal_.LogAct(caller, {.type = "steer",
                           .text = reply.effect(),
                           .flow = request.flow(),
                           .peer = names_.Of(flow->key.dst),
                           .to_slot = target->slot == CW_SLOT_NONE ? -1 : target->slot});
  return reply;
}

void Steering::EndPlacement(const FlowKey& flow) {
  const std::optional<Deadlines::Place> before = deadlines_.TakePlace(flow);
  for (Mover* mover : movers_) {
    const std::optional<std::string> how = mover->GiveBack(flow, before);
    if (!how) continue;
    const std::string id = flow.Id().ToString();
    journal_.Log(
        {.type = "steer", .text = absl::StrCat("flow ", id, " ", *how, ", and is the agent's again"), .flow = id});
  }
}

void Steering::EndLock(const FlowKey& flow) {
  for (Mover* mover : movers_) {
    const absl::StatusOr<uint8_t> before = mover->SetLocks(flow, 0);
    if (!before.ok() || *before == 0) continue;
    const std::string id = flow.Id().ToString();
    journal_.Log({.type = "steer", .text = absl::StrCat("flow ", id, " may be moved again"), .flow = id});
  }
}

absl::StatusOr<v1::ActionReply> Steering::Clear(const api::Caller& caller, const v1::SteerClearRequest& request) {
  const std::set<FlowKey> by_hand = ByHand(/*locked_too=*/true);
  std::vector<FlowKey> chosen;
  if (request.all()) {
    chosen.assign(by_hand.begin(), by_hand.end());
  } else {
    const absl::StatusOr<Found> flow = Find(request.flow());
    if (!flow.ok()) return flow.status();
    chosen.push_back(flow->key);
  }
  v1::ActionReply reply;
  const bool was_its_own = chosen.size() == 1 && !by_hand.contains(chosen[0]);
  for (const FlowKey& key : chosen) {
    deadlines_.SetPlacement(key, 0);
    deadlines_.SetLock(key, 0);
    EndPlacement(key);
    EndLock(key);
    reply.add_flows(key.Id().ToString());
  }
  modes_.KeepDeadlines();
  reply.set_effect(was_its_own ? absl::StrCat("flow ", request.flow(), " was the agent's already")
                               : absl::StrCat(Counted(chosen.size(), "flow"), chosen.size() == 1 ? " is" : " are",
                                              " the agent's again"));
  journal_.LogAct(caller, {.type = "steer", .text = reply.effect()});
  return reply;
}

absl::StatusOr<v1::ActionReply> Steering::Lock(const api::Caller& caller, const v1::SteerLockRequest& request) {
  const absl::StatusOr<Found> flow = Find(request.flow());
  if (!flow.ok()) return flow.status();
  uint8_t set = 0;
  std::string effect = absl::StrCat("flow ", request.flow(), " may be moved again");
  if (request.lock() == v1::LOCK_SOFT) {
    set = CW_STEER_LOCKED;
    effect = absl::StrCat("flow ", request.flow(), " is moved only off a dead path");
  } else if (request.lock() == v1::LOCK_HARD) {
    set = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED;
    effect = absl::StrCat("flow ", request.flow(), " is never moved, not even off a dead path");
  }
  const absl::StatusOr<uint8_t> before = flow->mover->SetLocks(flow->key, set);
  if (!before.ok()) return before.status();
  deadlines_.SetLock(flow->key, set != 0 ? EndNs(request.for_s(), monotonic_.NowNs()) : 0);
  modes_.KeepDeadlines();
  v1::ActionReply reply;
  reply.set_effect(effect);
  reply.set_undo(UndoOfLock(*before, set, request.flow()));
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  journal_.LogAct(caller, {.type = "steer", .text = effect, .flow = request.flow()});
  return reply;
}

void Steering::Adopt(bool adopted, const std::function<void()>& read_flows) {
  const absl::Status loaded = deadlines_.Load();
  if (absl::IsInvalidArgument(loaded))
    spdlog::warn("what an earlier agent was to end is lost: {}", std::string(loaded.message()));
  if (!adopted) deadlines_.Forget();  // what they were about is gone
  modes_.AdoptEnd();
  if (deadlines_.size() > 0) {
    journal_.Log({.type = "agent",
                  .text = absl::StrFormat("%d placements, locks or modes of before the restart end in time",
                                          deadlines_.size())});
    read_flows();
  }
  EndDue();
}

void Steering::EndDue() {
  const Deadlines::Due due = deadlines_.TakeDue(monotonic_.NowNs());
  modes_.KeepDeadlines();  // first: what is due is done once, whatever comes of it
  for (const FlowKey& flow : due.placements) EndPlacement(flow);
  for (const FlowKey& flow : due.locks) EndLock(flow);
  if (due.mode) modes_.Due(*due.mode);
  modes_.KeepDeadlines();
}

}  // namespace cw::agent
