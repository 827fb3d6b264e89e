// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/kernel_mover.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/placement.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr uint32_t kMuteRounds = 20;
constexpr uint8_t kLocks = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED;

}  // namespace

bool IsMute(const PairState& pair, const probe::Mesh& mesh, uint8_t slot) {
  const cw_pair& shared = *mesh.shared(pair.index);
  if (pair.blind || probe::Load(shared.live_mask) == 0 || mesh.slots(pair.index).is_path(slot)) return false;
  const uint32_t rounds = probe::Load(shared.cur_round) - probe::Load(shared.slot[slot].progress_round);
  return probe::Load(shared.slot[slot].state) == CW_SLOT_NEW && rounds >= kMuteRounds;
}

bool IsDead(const probe::Mesh& mesh, uint32_t pair, uint8_t slot) {
  return probe::Load(mesh.shared(pair)->slot[slot].state) == CW_SLOT_DEAD;
}

std::vector<control::DrainSlot> DrainSlotsOf(const PairState& pair, const probe::Mesh& mesh, uint16_t unknown) {
  const probe::SlotTable& slots = mesh.slots(pair.index);
  std::vector<control::DrainSlot> out;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots.port(s) == 0) continue;
    const uint8_t state = probe::Load(mesh.shared(pair.index)->slot[s].state);
    const bool drained = (pair.drained >> s & 1) != 0;
    out.push_back({.slot = s,
                   .live = state == CW_SLOT_UP || state == CW_SLOT_SUSPECT,
                   .path = slots.is_path(s),
                   .drained = drained,
                   // It flaps, loses packets, or may cross something drained: such come last.
                   .damped = ((pair.blocked >> s & 1) != 0 && !drained) || (unknown >> s & 1) != 0});
  }
  return out;
}

void KernelMover::OnPathLost(const PathLost& lost) {
  if (lost.cause != LossCause::kDead && lost.act) Leave(lost.pair, lost.slot, Capability::kLoss);
}

std::vector<control::ReturnFlow> KernelMover::Flows() const {
  std::vector<control::ReturnFlow> flows;
  for (const auto& [key, flow] : flows_.sent) {
    flows.push_back({.key = key,
                     .pair = flow.tx.pair,
                     .at = {.slot = flow.PathSlot(), .port = flow.tx.port},
                     .free = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0,
                     .wish = flow.tx.want_slot});
  }
  return flows;
}

bool KernelMover::GoBack(const control::ReturnAction& action) {
  const uint8_t slot = action.take_back ? uint8_t{CW_SLOT_NONE} : action.to.slot;
  return records_.Want(action.flow, slot, action.to.port, false).ok();
}

std::optional<FlowKey> KernelMover::Find(const std::string& id) const {
  for (const auto& [key, flow] : flows_.sent) {
    if (key.Id().ToString() == id) return key;
  }
  return std::nullopt;
}

absl::Status KernelMover::MayPlace(const FlowKey& key, const v1::SteerSetRequest& request) const {
  const cw_tx_flow& tx = flows_.sent.at(key).tx;
  if (request.lag_port() != 0)
    return absl::FailedPreconditionError(
        "its packets pass the kernel; a port of a bond is its owner's library's to choose");
  if ((tx.flags & CW_STEER_HARD_LOCKED) != 0)
    return absl::FailedPreconditionError("the flow is locked hard; first: cwctl steer lock --none " + request.flow());
  if (FindIn(pairs_, tx.pair) == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat(names_.Of(key.dst), " is no longer a peer; its flows are not steered"));
  if (request.has_port() && (request.port() == 0 || request.port() > 65535))
    return absl::InvalidArgumentError("a UDP port is 1-65535");
  return absl::OkStatus();
}

SteerTarget KernelMover::Native(const FlowKey& key) const {
  const cw_tx_flow& tx = flows_.sent.at(key).tx;
  return {.slot = tx.native_slot, .text = absl::StrCat("its native port ", tx.flow.sport)};
}

uint8_t KernelMover::SlotOfPort(const FlowKey& key, uint16_t port) const {
  return mesh_.slots(flows_.sent.at(key).tx.pair).SlotOfPort(port).value_or(CW_SLOT_NONE);
}

// A slot of its own is needed for a wish; the kernel makes it at the first moment that keeps order.
absl::Status KernelMover::Put(const FlowKey& key, uint8_t slot, uint16_t port, bool force) {
  return slot == CW_SLOT_NONE ? records_.Place(key, slot, port) : records_.Want(key, slot, port, force);
}

// Whoever asks next sees what was just set.
void KernelMover::Reread(const FlowKey& key) {
  const absl::StatusOr<cw_tx_flow> record = records_.Sent(key);
  const auto flow = flows_.sent.find(key);
  if (record.ok() && flow != flows_.sent.end()) flow->second.tx = *record;
}

absl::StatusOr<Mover::Placed> KernelMover::PlaceByHand(const FlowKey& key, const SteerTarget& to, bool force) {
  const cw_tx_flow before = flows_.sent.at(key).tx;
  const bool there = IsOn(before, {.slot = to.slot, .port = to.port});
  // A wish for the path that it is on would never come true; one for another path must not.
  absl::Status status = there ? records_.Want(key, CW_SLOT_NONE, 0, false) : Put(key, to.slot, to.port, force);
  if (status.ok()) status = records_.SetFlags(key, CW_STEER_MANUAL, 0);
  if (!status.ok()) return status;
  Reread(key);
  const std::string id = key.Id().ToString();
  Placed placed{.pending = !there && to.slot != CW_SLOT_NONE && !force, .before = PresentPlace(before)};
  const uint16_t port_now = before.port != 0 ? before.port : before.flow.sport;  // another may lead to the same path
  const std::string where = there && to.by_path ? absl::StrFormat("path %d, udp-port %d", to.slot, port_now) : to.text;
  placed.effect = there
                      ? absl::StrFormat("flow %s is on %s already, and stays there", id, where)
                      : absl::StrFormat("flow %s goes to %s%s", id, where,
                                        placed.pending ? " at the next pause or moment without packets in flight" : "");
  const bool same = there && (before.flags & CW_STEER_MANUAL) != 0 && before.want_slot == CW_SLOT_NONE;
  if (!same) placed.undo = UndoOfSet(before, id);
  return placed;
}

std::vector<FlowKey> KernelMover::ByHand(bool locked_too) const {
  const uint8_t flags = CW_STEER_MANUAL | (locked_too ? kLocks : 0);
  std::vector<FlowKey> keys;
  for (const auto& [key, flow] : flows_.sent) {
    if ((flow.tx.flags & flags) != 0) keys.push_back(key);
  }
  return keys;
}

std::optional<std::string> KernelMover::GiveBack(const FlowKey& key, const std::optional<Deadlines::Place>& before) {
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end() || (flow->second.tx.flags & CW_STEER_MANUAL) == 0) return std::nullopt;
  const cw_tx_flow& tx = flow->second.tx;
  const bool has_paths = FindIn(pairs_, tx.pair) != nullptr;  // its peer may have left the configuration
  const Deadlines::Place to = PlaceAfter(
      has_paths ? before : std::nullopt, tx.native_slot,
      [&](uint16_t port) { return mesh_.slots(tx.pair).SlotOfPort(port); },
      [&](uint8_t slot) { return IsDead(mesh_, tx.pair, slot); });
  (void)records_.SetFlags(key, 0, CW_STEER_MANUAL);
  if (tx.port == to.port) {
    (void)records_.Want(key, CW_SLOT_NONE, 0, false);
  } else {
    (void)Put(key, to.slot, to.port, false);
  }
  Reread(key);
  return absl::StrCat("goes back to ",
                      to.port == 0 ? "its native port" : absl::StrCat("path ", to.slot, ", where it was"));
}

absl::StatusOr<uint8_t> KernelMover::SetLocks(const FlowKey& key, uint8_t locks) {
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end()) return absl::NotFoundError("");
  const uint8_t before = flow->second.tx.flags & kLocks;
  if (before == 0 && locks == 0) return before;
  if (const absl::Status status = records_.SetFlags(key, locks, kLocks); !status.ok()) return status;
  Reread(key);
  return before;
}

std::vector<control::DrainSlot> KernelMover::DrainSlots(const PairState& pair, uint16_t unknown) const {
  std::vector<control::DrainSlot> out = DrainSlotsOf(pair, mesh_, unknown);
  for (control::DrainSlot& slot : out) {
    for (const auto& [key, flow] : flows_.sent) {
      if (flow.tx.pair != pair.index) continue;
      slot.flows += (flow.tx.want_slot != CW_SLOT_NONE ? flow.tx.want_slot : flow.PathSlot()) == slot.slot;
    }
  }
  return out;
}

Mover::Leaving KernelMover::LeaveDrained(const FlowKey& key, const DrainWay& way, DrainEntry::Moved& moved) {
  cw_tx_flow& tx = flows_.sent.at(key).tx;
  const PairState* pair = FindIn(pairs_, tx.pair);
  if (pair == nullptr || !way.act) return Leaving::kNo;
  const bool under_way = tx.want_slot < CW_MAX_SLOTS && (pair->drained >> tx.want_slot & 1) == 0;
  if (under_way && (tx.want_force != 0 || !way.now)) return Leaving::kUnderWay;
  const std::optional<uint8_t> target = control::DrainTarget(DrainSlots(*pair, way.unknown));
  if ((tx.flags & CW_STEER_HARD_LOCKED) != 0 || !target) return Leaving::kStays;
  const uint16_t port = mesh_.slots(tx.pair).port(*target);
  if (port == tx.port) return Leaving::kNo;  // nowhere better: all paths may cross it
  if (!records_.Want(key, *target, port, way.now).ok()) return Leaving::kNo;
  moved = {.from = tx.port, .to = port};
  tx.want_slot = *target;
  tx.want_port = port;
  tx.want_force = way.now ? 1 : 0;
  return Leaving::kGoes;
}

// As a pause allows.
bool KernelMover::ReturnDrained(const FlowKey& key, const DrainEntry::Moved& moved) {
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end()) return false;
  const cw_tx_flow& tx = flow->second.tx;
  const bool pending = tx.want_slot != CW_SLOT_NONE && tx.want_port == moved.to;
  const PairState* pair = FindIn(pairs_, tx.pair);
  if (pair == nullptr || (tx.port != moved.to && !pending)) return false;
  const uint8_t slot = moved.from == 0 ? tx.native_slot : SlotOfPort(key, moved.from);
  if (slot >= CW_MAX_SLOTS || (pair->drained >> slot & 1) != 0) return false;
  if (pending && tx.port == moved.from) {  // it never left
    (void)records_.Want(key, CW_SLOT_NONE, 0, false);
  } else {
    (void)records_.Want(key, slot, moved.from, false);
  }
  Reread(key);
  return true;
}

void KernelMover::DropMetWishes() {
  const auto met = [](const cw_tx_flow& flow) {
    return flow.want_slot != CW_SLOT_NONE && PendingSlot(flow) == CW_SLOT_NONE;
  };
  for (const auto& [key, flow] : flows_.sent) {
    if (!met(flow.tx)) continue;
    Reread(key);  // it may have another wish by now
    if (met(flow.tx)) (void)records_.Want(key, CW_SLOT_NONE, 0, false);
  }
}

void KernelMover::LeaveUnwatchedPorts() {
  std::set<uint32_t> pairs;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.port == 0 && flow.PathSlot() == CW_SLOT_NONE) pairs.insert(flow.tx.pair);
  }
  for (const uint32_t index : pairs) {
    const PairState* pair = FindIn(pairs_, index);
    if (pair == nullptr || !pair->active || pair->blind || !asks_.in_motion(index)) continue;
    const int left = Leave(*pair, CW_SLOT_NONE, Capability::kFailover, /*steered_to=*/0);
    if (left == 0) continue;
    events_.Log({.type = "path",
                 .severity = telemetry::Severity::kNotice,
                 .text = absl::StrFormat(
                     "paths to %s change, and no slot is left to watch the ports of %s: put on paths that are watched",
                     pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
                 .peer = pair->peer});
  }
}

void KernelMover::LeaveMutePorts() {
  for (const auto& [index, pair] : pairs_) {
    if (!pair->active) continue;
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (!IsMute(*pair, mesh_, s)) continue;
      const cw_pair& shared = *mesh_.shared(index);
      const cw_slot& slot = shared.slot[s];
      const uint32_t rounds = probe::Load(shared.cur_round) - probe::Load(slot.progress_round);
      const int left = Leave(*pair, s, Capability::kFailover);
      if (left == 0) continue;
      events_.Log(
          {.type = "path",
           .severity = telemetry::Severity::kAlert,
           .text = absl::StrFormat("udp-port %d to %s never answered while other paths did: %s put on others",
                                   probe::Load(slot.port), pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
           .peer = pair->peer,
           .slot = s,
           .evidence = {{"rounds", absl::StrCat(rounds)}}});
    }
  }
}

int KernelMover::Leave(const PairState& pair, uint8_t slot, Capability by, std::optional<uint16_t> steered_to) {
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  const uint16_t judged = JudgedSlots(*mesh_.shared(pair.index));
  std::array<int, CW_MAX_SLOTS> flows{};
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair.index && flow.PathSlot() < CW_MAX_SLOTS) ++flows[flow.PathSlot()];
  }
  std::vector<uint8_t> targets;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots.is_path(s) && (judged >> s & 1) != 0 && (pair.blocked >> s & 1) == 0) targets.push_back(s);
  }
  int left = 0;
  if (targets.empty()) return left;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair != pair.index || flow.PathSlot() != slot || (flow.tx.flags & CW_STEER_HARD_LOCKED) != 0) continue;
    if ((steered_to && flow.tx.port != *steered_to) || !asks_.allowed(pair.index, key).Acts(by)) continue;
    const bool going =
        flow.tx.want_force != 0 && std::find(targets.begin(), targets.end(), flow.tx.want_slot) != targets.end();
    if (going) continue;  // with its next packet
    const uint8_t to =
        *std::min_element(targets.begin(), targets.end(), [&](uint8_t a, uint8_t b) { return flows[a] < flows[b]; });
    ++flows[to];
    if (!records_.Want(key, to, slots.port(to), /*force=*/true).ok()) continue;
    ++left;
    if (!steered_to) asks_.left(key, pair.index, {slot, flow.tx.port}, {to, slots.port(to)});
  }
  return left;
}

}  // namespace cw::agent
