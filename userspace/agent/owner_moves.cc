// SPDX-License-Identifier: Apache-2.0
// Connected queue pairs that the library in their process moves (libcwverbs), where no program of ours sees their
// packets: off dead and lossy paths, by the same choice of a path as when they connected. What is asked for and what
// came of it: rdma/move_book.h. Off what is drained: owner_drain.cc; back to where they were: returns.cc.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/placement.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

constexpr int64_t kTellingNs = 1'000'000'000;  // libraries tell once per this time

int SlotNumber(uint8_t slot) { return slot == CW_SLOT_NONE ? -1 : slot; }

}  // namespace

// sends: it did since its owner told last; its paths are probed as those of flows that are seen.
void Agent::OnOwner(const rdma::QpInfo& qp, bool sends) {
  const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
  if (PairState* pair = index && sends ? FindPair(*index) : nullptr; pair != nullptr)
    pair->last_data_ns = MonotonicNs() + kTellingNs;
  if (!rdma::OwnFailover(qp) || !moves_.FirstOfOwnFailover(qp.pid)) return;
  Log({.type = "place",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat("process %d (%s) moves its queue pairs by itself (NCCL_IB_RESILIENCY_PORT_FAILOVER): "
                               "they are put on paths when they connect, and not moved",
                               qp.pid, qp.comm),
       .peer = peer_names_.Of(qp.raddr)});
}

void Agent::OnOwnerGone(const rdma::QpInfo& qp) {
  moves_.Forget(qp);
  if (!rdma::OwnFailover(qp)) return;
  const std::vector<rdma::QpInfo> all = qps_.All();
  if (std::none_of(all.begin(), all.end(), [&](const rdma::QpInfo& other) { return other.pid == qp.pid; }))
    moves_.ProcessGone(qp.pid);
}

// One owner of the port: where its packets are seen, or new flows are put on paths, that is the kernel's program.
bool Agent::KernelHas(const rdma::QpInfo& qp) const {
  if (flows_.sent.contains(rdma::SentFlow(qp))) return true;
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.address == qp.laddr; });
  return nic == nics_.end() || (nic->attached && options_.config.steering.assign_new_flows);
}

std::string Agent::WhyNotMoved(const rdma::QpInfo& qp) const {
  if (rdma::OwnFailover(qp)) return rdma::CannotMove(qp);
  return KernelHas(qp) ? "its packets pass the kernel, whose program moves it" : rdma::CannotMove(qp);
}

uint8_t Agent::SlotOfOwned(const rdma::QpInfo& qp, uint16_t port) const {
  return SlotOfUnseen(rdma::SentFlow(qp), port);
}

// Queue pairs of the pair that are on the slot and may be asked to leave it, always in the same order.
std::vector<rdma::QpInfo> Agent::OwnedOn(const PairState& pair, uint8_t slot) const {
  std::vector<rdma::QpInfo> found;
  qps_.ForEach([&](const rdma::QpInfo& qp) {
    const bool ours = qp.owner && qp.laddr == pair.key.local && qp.raddr == pair.key.remote;
    if (!ours || !moves_.MayAsk(qp) || SlotOfOwned(qp, qp.udp_sport) != slot || !WhyNotMoved(qp).empty()) return;
    found.push_back(qp);
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.lqpn < b.lqpn; });
  return found;
}

void Agent::OnOwnersPathLost(const PathLost& lost) {
  if (lost.cause == LossCause::kNoData) return;  // StepOwnerMoves
  MoveOwnersOff(lost.pair, lost.slot, lost.cause == LossCause::kDead ? Capability::kFailover : Capability::kLoss);
}

// again: those that are still there, without a word about those that would move.
void Agent::MoveOwnersOff(PairState& pair, uint8_t slot, Capability by, bool again) {
  const Allow allow = modes_->allowed().of(by);
  if (allow == Allow::kOff || (again && allow != Allow::kAct) || pair.blind) return;
  const std::vector<rdma::QpInfo> leaving = OwnedOn(pair, slot);
  if (leaving.empty()) return;
  std::vector<rdma::PathLoad> loads = PathLoads(pair, {}, pair.blocked);
  std::erase_if(loads, [&](const rdma::PathLoad& load) { return load.slot == slot; });
  const bool dead = by == Capability::kFailover;
  if (loads.empty() && dead) loads = PathLoads(pair, {}, /*avoid=*/0);  // drained or damped, but alive
  MoveOwnersTo(pair, leaving, std::move(loads), dead ? rdma::MoveWhy::kDead : rdma::MoveWhy::kLossy,
               allow == Allow::kAct);
}

// Each to that of the paths which has the fewest then. act: otherwise it is only told.
void Agent::MoveOwnersTo(const PairState& pair, const std::vector<rdma::QpInfo>& leaving,
                         std::vector<rdma::PathLoad> loads, rdma::MoveWhy why, bool act) {
  std::vector<rdma::MoveOrder> orders;
  for (const rdma::QpInfo& qp : leaving) {
    const rdma::PathLoad* to = rdma::LeastLoaded(loads, pair.index);
    if (to == nullptr) break;  // nowhere to go
    ++loads[static_cast<size_t>(to - loads.data())].queue_pairs;
    if (act) {
      orders.push_back(moves_.Ask(qp, to->port, 0, why, MonotonicNs()));
    } else {
      LogOwnerMove(qp, {.from_port = qp.udp_sport, .port = to->port, .at_ns = MonotonicNs(), .why = why}, 0, true);
    }
  }
  SendOrders(leaving, orders);
}

// qps: those that the orders are about, and others.
void Agent::SendOrders(const std::vector<rdma::QpInfo>& qps, const std::vector<rdma::MoveOrder>& orders) {
  for (const uint32_t request : inproc_->Move(orders)) {
    for (const rdma::QpInfo& qp : qps) moves_.Unsent(qp, request);
  }
}

// What could not be asked for then, or died while it was under way, or was on a port that never answered.
void Agent::StepOwnerMoves() {
  moves_.ExpireOverdue(MonotonicNs());
  for (auto& [index, pair] : pairs_) {
    const uint16_t lossy = LossySlots(*pair, MonotonicNs());
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (probe::Load(dataplane_->pairs()[index].slot[s].state) == CW_SLOT_DEAD || IsMute(*pair, engine_->mesh(), s)) {
        MoveOwnersOff(*pair, s, Capability::kFailover, /*again=*/true);
      } else if ((lossy >> s & 1) != 0) {
        MoveOwnersOff(*pair, s, Capability::kLoss, /*again=*/true);
      }
    }
  }
}

void Agent::OnOwnerMoved(const rdma::QpInfo& qp, const rdma::MoveResult& result) {
  const std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
  if (!known || known->pid != qp.pid) return;  // another process's, by its number
  const auto asked = moves_.Answered(qp, result);
  if (!asked) return;
  if (result.error == 0 && rdma::LeavesBadPath(asked->why)) OwnerLeftBadPath(qp, *asked);
  LogOwnerMove(qp, *asked, result.error, false);
}

void Agent::LogOwnerMove(const rdma::QpInfo& qp, const rdma::MoveBook::Asked& asked, int error, bool dry) {
  const uint8_t from = SlotOfOwned(qp, asked.from_port), to = SlotOfOwned(qp, asked.port);
  std::string where = asked.port == 0 ? "" : WayOfMove(from, to, asked.port);
  if (asked.lag_port != 0) absl::StrAppendFormat(&where, " to port %d of its bond", asked.lag_port);
  const std::string peer = peer_names_.Of(qp.raddr), why = rdma::MoveWhyName(asked.why);
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
        {"answered_ms", absl::StrFormat("%.1f", static_cast<double>(MonotonicNs() - asked.at_ns) / 1e6)});
  if (error != 0) {
    absl::StrAppend(&event.text, "; refused: ", rdma::ErrnoText(error));
    event.evidence.push_back({"errno", absl::StrCat(error)});
  }
  Log(std::move(event));
}

void Agent::AddOwnerMoves(const rdma::QpInfo& qp, v1::OwnerReport& out) const {
  const std::string why_not = WhyNotMoved(qp);
  const rdma::MoveBook::Entry entry = moves_.Of(qp);
  out.set_can_move(why_not.empty());
  out.set_cannot_move(why_not);
  out.set_udp_port(qp.udp_sport);
  out.set_last_refusal(entry.last_error == 0 ? "" : rdma::ErrnoText(entry.last_error));
  v1::OwnerMoves& moves = *out.mutable_moves();
  moves.set_done(entry.done);
  moves.set_refused(entry.refused);
  moves.set_to_port(entry.asked && entry.asked->port != 0 ? entry.asked->port : -1);
  moves.set_lag_port(qp.owner->lag_active);
  moves.set_lag_port_wanted(qp.owner->lag_wanted);
  moves.set_own_failover(rdma::OwnFailover(qp));
  moves.set_manual(entry.manual);
}

}  // namespace cw::agent
