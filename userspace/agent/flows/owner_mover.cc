// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/owner_mover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/placement.h"
#include "userspace/rdma/placement.h"

namespace cw::agent {
namespace {

constexpr int64_t kTellingNs = 1'000'000'000;  // libraries tell once per this time

int SlotNumber(uint8_t slot) { return slot == CW_SLOT_NONE ? -1 : slot; }

}  // namespace

void OwnerMover::OnOwner(const rdma::QpInfo& qp, bool sends) {
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  if (PairState* pair = index && sends ? FindIn(pairs_, *index) : nullptr; pair != nullptr)
    pair->last_data_ns = monotonic_.NowNs() + kTellingNs;
  if (!rdma::OwnFailover(qp) || !book_.FirstOfOwnFailover(qp.pid)) return;
  events_.Log(
      {.type = "place",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat("process %d (%s) moves its queue pairs by itself (NCCL_IB_RESILIENCY_PORT_FAILOVER): "
                               "they are put on paths when they connect, and not moved",
                               qp.pid, qp.comm),
       .peer = names_.Of(qp.raddr)});
}

void OwnerMover::OnOwnerGone(const rdma::QpInfo& qp) {
  book_.Forget(qp);
  if (!rdma::OwnFailover(qp)) return;
  const std::vector<rdma::QpInfo> all = qps_.All();
  if (std::none_of(all.begin(), all.end(), [&](const rdma::QpInfo& other) { return other.pid == qp.pid; }))
    book_.ProcessGone(qp.pid);
}

std::string OwnerMover::WhyNot(const rdma::QpInfo& qp) const {
  if (rdma::OwnFailover(qp)) return rdma::CannotMove(qp);
  return unseen_.KernelHas(qp) ? "its packets pass the kernel, whose program moves it" : rdma::CannotMove(qp);
}

std::vector<rdma::PathLoad> OwnerMover::Loads(const PairState& pair, const rdma::QpInfo& asking, uint16_t avoid) const {
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  std::vector<rdma::PathLoad> loads;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const auto state = probe::Load(mesh_.shared(pair.index)->slot[s].state);
    const bool alive = state == CW_SLOT_UP || state == CW_SLOT_NEW;
    if (slots.port(s) == 0 || !slots.is_path(s) || (avoid >> s & 1) != 0 || !alive) continue;
    loads.push_back({.slot = s, .port = slots.port(s)});
  }
  qps_.ForEach([&](const rdma::QpInfo& qp) {
    if (qp.laddr != pair.key.local || qp.raddr != pair.key.remote || qp.lqpn == asking.lqpn) return;
    uint16_t port = book_.PortOf(qp);
    const auto flow = flows_.sent.find(FlowKey{.src = qp.laddr, .dst = qp.raddr, .dqpn = qp.rqpn});
    if (flow != flows_.sent.end()) port = flow->second.tx.port != 0 ? flow->second.tx.port : flow->second.flow().sport;
    if (port == 0) return;
    port = asks_.fold(pair.index, port).value_or(port);
    for (rdma::PathLoad& load : loads) load.queue_pairs += load.port == port ? 1 : 0;
  });
  return loads;
}

// Queue pairs of the pair that are on the slot and may be asked to leave it, always in the same order.
std::vector<rdma::QpInfo> OwnerMover::OwnedOn(const PairState& pair, uint8_t slot) const {
  std::vector<rdma::QpInfo> found;
  qps_.ForEach([&](const rdma::QpInfo& qp) {
    const bool ours = qp.owner && qp.laddr == pair.key.local && qp.raddr == pair.key.remote;
    if (!ours || !book_.MayAsk(qp) || SlotOf(qp, qp.udp_sport) != slot || !WhyNot(qp).empty()) return;
    found.push_back(qp);
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.lqpn < b.lqpn; });
  return found;
}

void OwnerMover::OnPathLost(const PathLost& lost) {
  if (lost.cause == LossCause::kNoData) return;  // Step
  MoveOff(lost.pair, lost.slot, lost.cause == LossCause::kDead ? Capability::kFailover : Capability::kLoss, false);
}

// again: those that are still there, without a word about those that would move.
void OwnerMover::MoveOff(const PairState& pair, uint8_t slot, Capability by, bool again) {
  const Allow allow = asks_.allowed(pair.index).of(by);
  if (allow == Allow::kOff || (again && allow != Allow::kAct) || pair.blind) return;
  std::vector<rdma::QpInfo> leaving = OwnedOn(pair, slot);
  if (again) std::erase_if(leaving, [&](const rdma::QpInfo& qp) { return !Acts(pair, qp, by); });
  if (leaving.empty()) return;
  std::vector<rdma::PathLoad> loads = Loads(pair, {}, pair.blocked);
  std::erase_if(loads, [&](const rdma::PathLoad& load) { return load.slot == slot; });
  const bool dead = by == Capability::kFailover;
  if (loads.empty() && dead) loads = Loads(pair, {}, /*avoid=*/0);  // drained or damped, but alive
  MoveTo(pair, leaving, std::move(loads), dead ? rdma::MoveWhy::kDead : rdma::MoveWhy::kLossy,
         [&](const rdma::QpInfo& qp) { return Acts(pair, qp, by); });
}

bool OwnerMover::Acts(const PairState& pair, const rdma::QpInfo& qp, Capability by) const {
  return asks_.allowed(pair.index, rdma::SentFlow(qp)).Acts(by);
}

void OwnerMover::MoveTo(const PairState& pair, const std::vector<rdma::QpInfo>& leaving,
                        std::vector<rdma::PathLoad> loads, rdma::MoveWhy why,
                        absl::FunctionRef<bool(const rdma::QpInfo&)> act) {
  std::vector<rdma::MoveOrder> orders;
  for (const rdma::QpInfo& qp : leaving) {
    const rdma::PathLoad* to = rdma::LeastLoaded(loads, pair.index);
    if (to == nullptr) break;  // nowhere to go
    ++loads[static_cast<size_t>(to - loads.data())].queue_pairs;
    if (act(qp)) {
      orders.push_back(book_.Ask(qp, to->port, 0, why, monotonic_.NowNs()));
    } else {
      Tell(qp, {.from_port = qp.udp_sport, .port = to->port, .at_ns = monotonic_.NowNs(), .why = why}, 0, true);
    }
  }
  Send(leaving, orders);
}

void OwnerMover::Send(const std::vector<rdma::QpInfo>& qps, const std::vector<rdma::MoveOrder>& orders) {
  for (const uint32_t request : asks_.send(orders)) {
    for (const rdma::QpInfo& qp : qps) book_.Unsent(qp, request);
  }
}

void OwnerMover::Step() {
  book_.ExpireOverdue(monotonic_.NowNs());
  for (const auto& [index, pair] : pairs_) {
    const uint16_t lossy = LossySlots(*pair, monotonic_.NowNs());
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (probe::Load(mesh_.shared(index)->slot[s].state) == CW_SLOT_DEAD || IsMute(*pair, mesh_, s)) {
        MoveOff(*pair, s, Capability::kFailover, /*again=*/true);
      } else if ((lossy >> s & 1) != 0) {
        MoveOff(*pair, s, Capability::kLoss, /*again=*/true);
      }
    }
  }
}

void OwnerMover::OnMoved(const rdma::QpInfo& qp, const rdma::MoveResult& result) {
  const std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
  if (!known || known->pid != qp.pid) return;  // another process's, by its number
  const auto asked = book_.Answered(qp, result);
  if (!asked) return;
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  if (result.error == 0 && rdma::LeavesBadPath(asked->why) && index)
    asks_.left(rdma::SentFlow(qp), *index, PlaceOf(qp, asked->from_port), PlaceOf(qp, asked->port));
  Tell(qp, *asked, result.error, false);
}

void OwnerMover::Tell(const rdma::QpInfo& qp, const rdma::MoveBook::Asked& asked, int error, bool dry) {
  const uint8_t from = SlotOf(qp, asked.from_port), to = SlotOf(qp, asked.port);
  std::string where = asked.port == 0 ? "" : WayOfMove(from, to, asked.port);
  if (asked.lag_port != 0) absl::StrAppendFormat(&where, " to port %d of its bond", asked.lag_port);
  const std::string peer = names_.Of(qp.raddr), why = rdma::MoveWhyName(asked.why);
  telemetry::Event event{.type = "move",
                         .severity = error != 0 ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
                         .text = absl::StrFormat("queue pair to %s qp 0x%x %s%s: %s", peer, qp.rqpn,
                                                 dry          ? "would be moved by its owner's library"
                                                 : error != 0 ? "was not moved by its owner's library"
                                                              : "was moved by its owner's library",
                                                 where, why),
                         .flow = rdma::SentFlow(qp).Id().ToString(),
                         .peer = peer,
                         .slot = SlotNumber(from),
                         .to_slot = SlotNumber(asked.port == 0 ? from : to),
                         .dry = dry};
  event.evidence = {
      {"reason", why}, {"udp_port_before", absl::StrCat(asked.from_port)}, {"udp_port", absl::StrCat(asked.port)}};
  if (!dry)
    event.evidence.push_back(
        {"answered_ms", absl::StrFormat("%.1f", static_cast<double>(monotonic_.NowNs() - asked.at_ns) / 1e6)});
  if (error != 0) {
    absl::StrAppend(&event.text, "; refused: ", rdma::ErrnoText(error));
    event.evidence.push_back({"errno", absl::StrCat(error)});
  }
  events_.Log(std::move(event));
}

// The path that a port takes, by its own port: one that connected on another port of the same path comes back to that.
control::ReturnPlace OwnerMover::PlaceOf(const rdma::QpInfo& qp, uint16_t port) const {
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  const uint8_t slot = SlotOf(qp, port);
  if (!index || slot >= CW_MAX_SLOTS || !mesh_.slots(*index).is_path(slot)) return {};
  return {.slot = slot, .port = mesh_.slots(*index).port(slot)};
}

std::vector<control::ReturnFlow> OwnerMover::Flows() const {
  std::vector<control::ReturnFlow> flows;
  for (const rdma::QpInfo& qp : qps_.Owned()) {
    const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
    if (!index) continue;
    const rdma::MoveBook::Entry entry = book_.Of(qp);
    control::ReturnFlow flow{.key = rdma::SentFlow(qp), .pair = *index, .at = PlaceOf(qp, qp.udp_sport)};
    flow.free = !entry.manual && entry.refused_in_row == 0 && WhyNot(qp).empty();
    // One that leaves a bad path once more keeps its home.
    if (entry.asked && entry.asked->port != 0 && !rdma::LeavesBadPath(entry.asked->why))
      flow.wish = PlaceOf(qp, entry.asked->port).slot;
    flows.push_back(flow);
  }
  return flows;
}

// What was ordered cannot be taken back: a queue pair that comes to a path which failed again leaves it once more.
bool OwnerMover::GoBack(const control::ReturnAction& action) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(action.flow);
  if (action.take_back || !qp || !qp->owner || !book_.MayAsk(*qp)) return false;
  Send({*qp}, {book_.Ask(*qp, action.to.port, 0, rdma::MoveWhy::kRecovered, monotonic_.NowNs())});
  return true;
}

std::optional<rdma::QpInfo> OwnerMover::Owned(const FlowKey& flow) const {
  if (flows_.sent.contains(flow)) return std::nullopt;
  if (std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow); qp && qp->owner) return qp;
  // Its flow may be known under a queue pair that nobody speaks for, or not at all, whatever its process says.
  for (rdma::QpInfo& qp : qps_.Owned()) {
    if (rdma::SentFlow(qp) == flow) return std::move(qp);
  }
  return std::nullopt;
}

std::optional<FlowKey> OwnerMover::Find(const std::string& id) const {
  for (const rdma::QpInfo& qp : qps_.Owned()) {
    const FlowKey key = rdma::SentFlow(qp);
    if (key.Id().ToString() == id && !flows_.sent.contains(key)) return key;
  }
  return std::nullopt;
}

absl::Status OwnerMover::MayPlace(const FlowKey& flow, const v1::SteerSetRequest& request) const {
  const rdma::QpInfo qp = *Owned(flow);
  const bool places = request.has_native() || request.has_path() || request.has_port();
  const std::string why_not = WhyNot(qp);
  if (!why_not.empty() && (places || rdma::OwnFailover(qp)))
    return absl::FailedPreconditionError("it is not moved: " + why_not);
  if (request.has_port() && (request.port() < CW_INPROC_FIRST_PORT || request.port() > 65535))
    return absl::InvalidArgumentError("a queue pair that its owner's library moves takes UDP ports 49152-65535");
  if (request.lag_port() != 0 && (qp.owner->can & CW_INPROC_CAN_MOVE_LAG) == 0)
    return absl::FailedPreconditionError("its device is no bond whose port can be chosen, as far as its library knows");
  if (request.lag_port() > 255) return absl::InvalidArgumentError("a bond's ports are 1-255");
  if (request.for_s() > 0 && !places)
    return absl::InvalidArgumentError("a port of a bond stays until another is chosen; leave --for out");
  return absl::OkStatus();
}

SteerTarget OwnerMover::Native(const FlowKey& flow) const {
  const rdma::QpInfo qp = *Owned(flow);
  const uint16_t port = rdma::PortOfQpns(qp.lqpn, qp.rqpn);
  return {.slot = SlotOf(qp, port), .port = port};
}

uint8_t OwnerMover::SlotOfPort(const FlowKey& flow, uint16_t port) const { return unseen_.SlotOf(flow, port); }

absl::StatusOr<Mover::Placed> OwnerMover::PlaceByHand(const FlowKey& flow, const SteerTarget& to, bool) {
  const rdma::QpInfo qp = *Owned(flow);
  if (to.places) book_.SetManual(qp, true);
  const rdma::MoveOrder order = book_.Ask(qp, to.port, to.lag_port, rdma::MoveWhy::kOperator, monotonic_.NowNs());
  if (!asks_.send({order}).empty()) {
    book_.Unsent(qp, order.request);
    return absl::UnavailableError("its owner's library does not take orders now; see cwctl qps");
  }
  const std::string id = flow.Id().ToString();
  std::string where = to.places ? absl::StrFormat(" to udp-port %d", to.port) : "";
  if (to.lag_port != 0) absl::StrAppendFormat(&where, " to port %d of its bond", to.lag_port);
  return Placed{.effect = absl::StrFormat(
                    "its owner's library was asked to move flow %s%s; what came of it: cwctl qps %s", id, where, id),
                .undo = to.places ? absl::StrCat("steer clear ", id) : ""};
}

std::vector<FlowKey> OwnerMover::ByHand(bool) const {
  std::vector<FlowKey> keys;
  for (const rdma::QpInfo& qp : qps_.Owned()) {
    if (book_.Of(qp).manual && !flows_.sent.contains(rdma::SentFlow(qp))) keys.push_back(rdma::SentFlow(qp));
  }
  return keys;
}

// Back where an operator took it from, unless that is dead now.
std::optional<std::string> OwnerMover::GiveBack(const FlowKey& flow, const std::optional<Deadlines::Place>&) {
  const std::optional<rdma::QpInfo> qp = Owned(flow);
  if (!qp || !book_.Of(*qp).manual) return std::nullopt;
  const uint16_t port = book_.Of(*qp).before_manual;
  book_.SetManual(*qp, false);
  const uint32_t pair = mesh_.Find({qp->laddr, qp->raddr}).value_or(CW_PAIR_NONE);
  if (!MayReturn(*qp, port) || !asks_.allowed(pair, flow).ActsAtAll()) return "stays where it is";
  Send({*qp}, {book_.Ask(*qp, port, 0, rdma::MoveWhy::kOperator, monotonic_.NowNs())});
  return absl::StrCat("goes back to udp-port ", port);
}

bool OwnerMover::MayReturn(const rdma::QpInfo& qp, uint16_t port) const {
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  const uint8_t slot = SlotOf(qp, port);
  const bool dead = index && slot < CW_MAX_SLOTS && IsDead(mesh_, *index, slot);
  return !dead && port >= CW_INPROC_FIRST_PORT && WhyNot(qp).empty();
}

absl::StatusOr<uint8_t> OwnerMover::SetLocks(const FlowKey&, uint8_t) {
  return absl::FailedPreconditionError(
      "its packets do not pass the kernel, which alone keeps locks; place it instead: cwctl steer set");
}

// Where it is only known that it may cross what is drained, it does not leave for a path of which no more is known.
Mover::Leaving OwnerMover::LeaveDrained(const FlowKey& flow, const DrainWay& way, DrainEntry::Moved& moved) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow);
  const std::optional<uint32_t> index = mesh_.Find({flow.src, flow.dst});
  const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (!qp || pair == nullptr) return Leaving::kNo;
  if (book_.Of(*qp).asked) return Leaving::kUnderWay;  // the next look tells
  if (!book_.MayAsk(*qp) || !WhyNot(*qp).empty()) return Leaving::kStays;
  std::vector<rdma::PathLoad> loads = Loads(*pair, {}, pair->blocked | way.unknown);
  if (loads.empty() && way.certainly) loads = Loads(*pair, {}, pair->blocked);
  if (loads.empty()) return Leaving::kStays;
  MoveTo(*pair, {*qp}, std::move(loads), rdma::MoveWhy::kDrained, [&](const rdma::QpInfo&) { return way.act; });
  moved = {.from = qp->udp_sport, .to = book_.PortOf(*qp)};
  return moved.to == moved.from ? Leaving::kNo : Leaving::kGoes;
}

bool OwnerMover::ReturnDrained(const FlowKey& flow, const DrainEntry::Moved& moved) {
  const std::optional<rdma::QpInfo> qp = Owned(flow);
  const std::optional<uint32_t> index = mesh_.Find({flow.src, flow.dst});
  const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (!qp || pair == nullptr || book_.PortOf(*qp) != moved.to) return false;
  const uint8_t slot = SlotOf(*qp, moved.from);
  if (slot >= CW_MAX_SLOTS || (pair->drained >> slot & 1) != 0 || !MayReturn(*qp, moved.from)) return false;
  Send({*qp}, {book_.Ask(*qp, moved.from, 0, rdma::MoveWhy::kDrainOver, monotonic_.NowNs())});
  return true;
}

}  // namespace cw::agent
