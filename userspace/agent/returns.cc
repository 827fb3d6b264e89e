// SPDX-License-Identifier: Apache-2.0
// Back to paths that recovered: control/returns.h says when. Where flows move for balance, the contention rule takes
// what recovered into use.
#include "userspace/control/returns.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"

namespace cw::agent {
namespace {

control::ReturnPlace PlaceOf(const FlowEntry& flow) { return {.slot = flow.PathSlot(), .port = flow.tx.port}; }

}  // namespace

// May flows be put there, and is the port still that of the slot.
bool Agent::MayReturnTo(uint32_t index, control::ReturnPlace place) {
  const PairState* pair = FindPair(index);
  if (pair == nullptr || place.slot >= CW_MAX_SLOTS || (pair->blocked >> place.slot & 1) != 0) return false;
  const uint8_t state = probe::Load(dataplane_->pairs()[index].slot[place.slot].state);
  const uint16_t port = engine_->mesh().slots(index).port(place.slot);
  return (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) && (place.port == 0 ? port != 0 : port == place.port);
}

void Agent::StepReturns(int64_t now_ns) {
  if (returns_->away() == 0) return;
  std::vector<control::ReturnFlow> flows;
  if (modes_->ActsAtAll() && !breaker_->MayBalance()) {  // otherwise it forgets them all
    for (const auto& [key, flow] : flows_.sent) {
      const bool free = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0;
      flows.push_back({.key = key, .pair = flow.tx.pair, .at = PlaceOf(flow), .free = free, .wish = flow.tx.want_slot});
    }
  }
  const auto usable = [this](uint32_t index, control::ReturnPlace place) { return MayReturnTo(index, place); };
  for (const control::ReturnAction& action : returns_->Step(now_ns, flows, usable)) {
    const uint8_t slot = action.take_back ? uint8_t{CW_SLOT_NONE} : action.to.slot;
    if (!dataplane_->flow_editor().Want(ToMap(action.flow), slot, action.to.port, false).ok()) continue;
    TellReturn(action, returns_->away());
  }
}

void Agent::TellReturn(const control::ReturnAction& action, size_t away) {
  const std::string peer = peer_names_.Of(action.flow.dst);
  Log({.type = "return",
       .text = action.take_back ? absl::StrFormat("queue pair to %s qp 0x%x stays where it is: path %d failed again",
                                                  peer, action.flow.dqpn, action.to.slot)
                                : absl::StrFormat("queue pair to %s qp 0x%x goes back to path %d, which recovered",
                                                  peer, action.flow.dqpn, action.to.slot),
       .flow = action.flow.Id().ToString(),
       .peer = peer,
       .to_slot = action.to.slot,
       .evidence = {{"flows_away", absl::StrCat(away)}}});
}

// The path that a port takes, by its own port: one that connected on another port of the same path comes back to that.
control::ReturnPlace Agent::PlaceOfOwned(const rdma::QpInfo& qp, uint16_t port) const {
  const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
  const uint8_t slot = SlotOfOwned(qp, port);
  if (!index || slot >= CW_MAX_SLOTS || !engine_->mesh().slots(*index).is_path(slot)) return {};
  return {.slot = slot, .port = engine_->mesh().slots(*index).port(slot)};
}

void Agent::OwnerLeftBadPath(const rdma::QpInfo& qp, const rdma::MoveBook::Asked& asked) {
  const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
  if (!index) return;
  owner_returns_->Left(rdma::SentFlow(qp), *index, PlaceOfOwned(qp, asked.from_port), PlaceOfOwned(qp, asked.port));
}

// Once per second. Also where flows move for balance, since these do not. What was ordered cannot be taken back: a
// queue pair that comes to a path which failed again leaves it once more.
void Agent::StepOwnerReturns(int64_t now_ns) {
  if (owner_returns_->away() == 0) return;
  std::vector<control::ReturnFlow> flows;
  std::map<FlowKey, rdma::QpInfo> known;
  for (rdma::QpInfo& qp : qps_.Owned()) {
    const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
    if (!index || !modes_->ActsAtAll()) continue;
    const rdma::MoveBook::Entry entry = moves_.Of(qp);
    control::ReturnFlow flow{.key = rdma::SentFlow(qp), .pair = *index, .at = PlaceOfOwned(qp, qp.udp_sport)};
    flow.free = !entry.manual && entry.refused_in_row == 0 && WhyNotMoved(qp).empty();
    // One that leaves a bad path once more keeps its home.
    if (entry.asked && entry.asked->port != 0 && !rdma::LeavesBadPath(entry.asked->why))
      flow.wish = PlaceOfOwned(qp, entry.asked->port).slot;
    flows.push_back(flow);
    known[flow.key] = std::move(qp);
  }
  const auto usable = [this](uint32_t index, control::ReturnPlace place) { return MayReturnTo(index, place); };
  for (const control::ReturnAction& action : owner_returns_->Step(now_ns, flows, usable)) {
    const auto qp = known.find(action.flow);
    if (qp == known.end() || action.take_back || !moves_.MayAsk(qp->second)) continue;
    TellReturn(action, owner_returns_->away());
    SendOrders({qp->second}, {moves_.Ask(qp->second, action.to.port, 0, rdma::MoveWhy::kRecovered, now_ns)});
  }
}

}  // namespace cw::agent
