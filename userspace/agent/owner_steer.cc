// SPDX-License-Identifier: Apache-2.0
// What operators ask for and ask about queue pairs that the library in their process moves.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/views/flows_view.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

const char* PlacementOf(const rdma::QpInfo& qp, const rdma::MoveBook::Entry& entry) {
  if (entry.manual) return "operator";
  if (entry.done > 0) return "owner_moved";
  return qp.owner->asked == CW_INPROC_PLACED ? "owner_placed" : "native";
}

void AddHold(v1::WhyReply& reply, const char* kind, const std::string& text) {
  v1::WhyHold* hold = reply.add_holds();
  hold->set_kind(kind);
  hold->set_text(text);
}

}  // namespace

std::optional<rdma::QpInfo> Agent::FindOwned(const std::string& id) const {
  for (const rdma::QpInfo& qp : qps_.Owned()) {
    const FlowKey key = rdma::SentFlow(qp);
    if (key.Id().ToString() == id && !flows_.sent.contains(key)) return qp;
  }
  return std::nullopt;
}

// The port that is asked for; 0: as it is, only the bond's port is asked for.
absl::StatusOr<uint16_t> Agent::PortFor(const v1::SteerSetRequest& request, const rdma::QpInfo& qp) const {
  if (request.has_native()) return rdma::PortOfQpns(qp.lqpn, qp.rqpn);
  if (request.has_port()) {
    if (request.port() < CW_INPROC_FIRST_PORT || request.port() > 65535)
      return absl::InvalidArgumentError("a queue pair that its owner's library moves takes UDP ports 49152-65535");
    return static_cast<uint16_t>(request.port());
  }
  if (!request.has_path()) {
    if (request.lag_port() != 0) return uint16_t{0};
    return absl::InvalidArgumentError("say where to: a path, a UDP port, its native port or a port of its bond");
  }
  const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
  const auto slot = static_cast<uint8_t>(std::min<uint32_t>(request.path(), CW_MAX_SLOTS));
  const uint16_t port = index && slot < CW_MAX_SLOTS ? engine_->mesh().slots(*index).port(slot) : uint16_t{0};
  if (port == 0)
    return absl::NotFoundError(
        absl::StrCat("no path ", request.path(), " to ", peer_names_.Of(qp.raddr), "; see cwctl paths"));
  const PairState& pair = *pairs_.at(*index);
  if (probe::Load(dataplane_->pairs()[*index].slot[slot].state) == CW_SLOT_DEAD)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is dead; see cwctl paths", slot));
  if ((pair.drained >> slot & 1) != 0)
    return absl::FailedPreconditionError(absl::StrFormat("path %d is drained; see cwctl drain list", slot));
  return port;
}

absl::StatusOr<v1::ActionReply> Agent::SteerOwned(const api::Caller& caller, const v1::SteerSetRequest& request,
                                                  const rdma::QpInfo& qp) {
  const absl::StatusOr<uint16_t> port = PortFor(request, qp);
  if (!port.ok()) return port.status();
  if (rdma::OwnFailover(qp)) return absl::FailedPreconditionError("it is not moved: " + owner_mover_->WhyNot(qp));
  if (const std::string why_not = owner_mover_->WhyNot(qp); *port != 0 && !why_not.empty())
    return absl::FailedPreconditionError("it is not moved: " + why_not);
  if (request.lag_port() != 0 && (qp.owner->can & CW_INPROC_CAN_MOVE_LAG) == 0)
    return absl::FailedPreconditionError("its device is no bond whose port can be chosen, as far as its library knows");
  if (request.lag_port() > 255) return absl::InvalidArgumentError("a bond's ports are 1-255");
  if (request.for_s() > 0 && *port == 0)
    return absl::InvalidArgumentError("a port of a bond stays until another is chosen; leave --for out");
  if (*port != 0) owner_mover_->book().SetManual(qp, true);
  const rdma::MoveOrder order = owner_mover_->book().Ask(qp, *port, static_cast<uint8_t>(request.lag_port()),
                                                         rdma::MoveWhy::kOperator, MonotonicNs());
  if (!inproc_->Move({&order, 1}).empty()) {
    owner_mover_->book().Unsent(qp, order.request);
    return absl::UnavailableError("its owner's library does not take orders now; see cwctl qps");
  }
  const FlowKey key = rdma::SentFlow(qp);
  if (*port != 0) deadlines_.SetPlacement(key, EndNs(request.for_s(), MonotonicNs()));
  modes_->KeepDeadlines();
  v1::ActionReply reply;
  std::string target = *port == 0 ? "" : absl::StrFormat(" to udp-port %d", *port);
  if (request.lag_port() != 0) absl::StrAppendFormat(&target, " to port %d of its bond", request.lag_port());
  reply.set_effect(absl::StrFormat("its owner's library was asked to move flow %s%s; what came of it: cwctl qps %s",
                                   request.flow(), target, request.flow()));
  if (*port != 0) reply.set_undo(absl::StrCat("steer clear ", request.flow()));
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  const uint8_t slot = *port == 0 ? uint8_t{CW_SLOT_NONE} : owner_mover_->SlotOf(qp, *port);
  journal_.LogAct(caller, {.type = "steer",
                           .text = reply.effect(),
                           .flow = request.flow(),
                           .peer = peer_names_.Of(qp.raddr),
                           .to_slot = slot == CW_SLOT_NONE ? -1 : slot});
  return reply;
}

// Back where an operator took it from, unless that is dead now.
void Agent::RevertOwned(const FlowKey& key) {
  const std::optional<rdma::QpInfo> qp = FindOwned(key.Id().ToString());
  if (!qp) return;
  const rdma::MoveBook::Entry entry = owner_mover_->book().Of(*qp);
  if (!entry.manual) return;
  owner_mover_->book().SetManual(*qp, false);
  const uint8_t slot = owner_mover_->SlotOf(*qp, entry.before_manual);
  const std::optional<uint32_t> index = engine_->mesh().Find({qp->laddr, qp->raddr});
  const bool dead =
      index && slot != CW_SLOT_NONE && probe::Load(dataplane_->pairs()[*index].slot[slot].state) == CW_SLOT_DEAD;
  const bool goes = !dead && entry.before_manual >= CW_INPROC_FIRST_PORT && owner_mover_->WhyNot(*qp).empty();
  if (goes)
    owner_mover_->Send(
        {*qp}, {owner_mover_->book().Ask(*qp, entry.before_manual, 0, rdma::MoveWhy::kOperator, MonotonicNs())});
  Log({.type = "steer",
       .text =
           absl::StrFormat("flow %s %s, and is the agent's again", key.Id().ToString(),
                           goes ? absl::StrCat("goes back to udp-port ", entry.before_manual) : "stays where it is"),
       .flow = key.Id().ToString()});
}

std::optional<v1::WhyReply> Agent::WhyOwned(const std::string& id) {
  const std::optional<rdma::QpInfo> qp = FindOwned(id);
  if (!qp) return std::nullopt;
  const FlowKey key = rdma::SentFlow(*qp);
  v1::WhyReply reply;
  reply.set_mode(static_cast<v1::Mode>(static_cast<int>(modes_->mode()) + 1));
  *reply.mutable_flow() = flows_view_->OfUnseen(*qp, rdma::NativePortOf(*qp, ""));
  reply.set_placement(PlacementOf(*qp, owner_mover_->book().Of(*qp)));
  jobs_->FillCollective(key, reply);
  if (rdma::OwnFailover(*qp)) {
    AddHold(reply, "own_failover", "not moved by the agent: " + owner_mover_->WhyNot(*qp));
  } else if (const std::string why_not = owner_mover_->WhyNot(*qp); !why_not.empty()) {
    AddHold(reply, "cannot_move", "not moved while it is connected: " + why_not);
  }
  const rdma::MoveBook::Entry entry = owner_mover_->book().Of(*qp);
  if (entry.manual)
    AddHold(reply, "manual", "placed by an operator: the agent moves it off a bad or drained path only");
  if (entry.asked)
    AddHold(reply, "pending",
            absl::StrFormat("its owner's library was asked to move it (%s)", rdma::MoveWhyName(entry.asked->why)));
  if (entry.last_error != 0)
    AddHold(reply, "refused", "its last move that was refused: " + rdma::ErrnoText(entry.last_error));
  const std::optional<uint32_t> index = engine_->mesh().Find({qp->laddr, qp->raddr});
  PairState* pair = index ? FindPair(*index) : nullptr;
  if (pair == nullptr) return reply;
  AddPairHolds(*pair, reply);
  const uint8_t slot = owner_mover_->SlotOf(*qp, qp->udp_sport);
  if (slot >= CW_MAX_SLOTS) return reply;
  AddPathHolds(*pair, slot, reply);
  *reply.mutable_path() = MakeWhyPathOf(*pair, slot);
  return reply;
}

}  // namespace cw::agent
