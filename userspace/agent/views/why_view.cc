// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/why_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/placement.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/api/path_ref.h"

namespace cw::agent {
namespace {

void AddHold(v1::WhyReply& reply, const char* kind, const std::string& text, double left_s = 0) {
  v1::WhyHold* hold = reply.add_holds();
  hold->set_kind(kind);
  hold->set_text(text);
  hold->set_left_s(left_s);
}

const char* Placement(const FlowEntry& flow, bool acts) {
  if (flow.received) return "received";
  if (!acts || flow.tx.port == 0) return "native";
  if ((flow.tx.flags & CW_STEER_MANUAL) != 0 && flow.tx.want_slot == CW_SLOT_NONE) return "operator";
  if (flow.tx.reason == CW_MOVE_ASSIGN) return "assigned";
  return flow.tx.reason == CW_MOVE_DEAD ? "left_dead_path" : "moved";
}

const char* PlacementOfOwned(const rdma::QpInfo& qp, const rdma::MoveBook::Entry& entry) {
  if (entry.manual) return "operator";
  if (entry.done > 0) return "owner_moved";
  return qp.owner->asked == CW_INPROC_PLACED ? "owner_placed" : "native";
}

void FillCandidate(const control::PathExplanation& from, v1::WhyCandidate* to) {
  to->set_slot(from.slot);
  to->set_usable(from.usable);
  to->set_queue_ns(from.queue_ns);
  to->set_queue_known(from.queue_windows > 0);
  to->set_queue_limit_ns(from.queue_limit_ns);
  to->set_marked_share(from.marked_share);
  to->set_marks_known(from.marks_known);
  to->set_own_flows(static_cast<uint32_t>(std::max(from.own_flows, 0)));
  to->set_others(from.others);
}

v1::WhyRule RuleView(const control::Explanation& e) {
  v1::WhyRule rule;
  rule.set_standing(control::StandingName(e.standing));
  rule.set_text(e.text);
  rule.set_rate_bps(e.rate_bps);
  rule.set_capacity_bps(e.capacity_bps);
  rule.set_windows_on_path(static_cast<uint32_t>(e.windows_on_path));
  rule.set_congested_windows(static_cast<uint32_t>(e.congested_windows));
  rule.set_congested_wanted(static_cast<uint32_t>(e.congested_wanted));
  if (e.here.slot != kSlotNone) FillCandidate(e.here, rule.mutable_here());
  for (const control::CandidateExplanation& c : e.candidates) {
    v1::WhyCandidate* out = rule.add_candidates();
    FillCandidate(c.path, out);
    out->set_gain(c.gain);
    out->set_probability(c.probability);
    out->set_enough(c.enough);
    out->set_text(c.text);
  }
  return rule;
}

}  // namespace

v1::WhyPath WhyView::PathOf(PairState& pair, uint8_t slot) const {
  const int64_t now_ns = monotonic_.NowNs();
  v1::WhyPath out;
  const v1::Pair whole = paths_view_.Pair(pair);
  out.set_nic(whole.nic());
  out.set_peer(whole.peer());
  out.set_remote_address(whole.remote_address());
  out.set_table(whole.table());
  out.set_hashing(whole.hashing());
  for (const v1::Path& path : whole.paths()) {
    if (path.slot() == slot) *out.mutable_path() = path;
  }
  google::protobuf::RepeatedPtrField<v1::PathWindow> kept;
  for (v1::PathWindow& window : *out.mutable_path()->mutable_windows()) {
    if (window.seconds() == 10) kept.Add()->Swap(&window);
  }
  out.mutable_path()->mutable_windows()->Swap(&kept);
  control::PathDamping& damping = pair.slot[slot].damping;
  out.set_penalty(damping.PenaltyAt(now_ns));
  out.set_reuse_s(static_cast<double>(std::max<int64_t>(damping.ReuseAtNs(now_ns) - now_ns, 0)) / 1e9);
  out.set_flaps(static_cast<uint32_t>(pair.slot[slot].flaps.CountAt(now_ns)));
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair.index && flow.SlotOfPackets(asks_.allowed().ActsAtAll()) == slot)
      out.add_flows(key.Id().ToString());
  }
  std::sort(out.mutable_flows()->begin(), out.mutable_flows()->end());
  return out;
}

// What holds for every flow to the peer.
void WhyView::AddPairHolds(const PairState& pair, const FlowKey* flow, v1::WhyReply& reply) const {
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  const Allowed allowed = asks_.allowed();
  if (allowed != Allowed(Mode::kOptimize)) {
    const char* means = allowed.mode() == Mode::kOff       ? "every flow is on its native port"
                        : allowed.mode() == Mode::kObserve ? "moves are decided and logged, none is made"
                        : allowed.mode() == Mode::kProtect
                            ? "flows leave dead paths only, and are not moved for balance"
                            : "each capability by itself";
    const double left_s =
        deadlines_.mode() ? static_cast<double>(deadlines_.mode()->at_ns - monotonic_.NowNs()) / 1e9 : 0.0;
    AddHold(reply, "mode", absl::StrCat("mode ", allowed.ToString(), ": ", means), std::max(left_s, 0.0));
  }
  for (const Scopes::Hold& hold : asks_.scopes(pair, flow)) AddHold(reply, "scope", hold.text, hold.left_s);
  if (const std::string why = asks_.balance_held(); !why.empty())
    AddHold(reply, "breaker", absl::StrCat("nothing moves for balance: ", why));
  if (!pair.table_seen) {
    AddHold(reply, "table", absl::StrCat("the paths to ", pair.peer, " are not found yet"));
  } else if (discovery != nullptr && !discovery->table().valid) {
    AddHold(reply, "table", absl::StrCat("the paths to ", pair.peer, " changed and are being found again"));
  }
  if (discovery == nullptr) return;
  if (!probe::PortsChoosePaths(discovery->hashing())) {
    AddHold(reply, "hashing",
            absl::StrCat("ports do not choose the path to ", pair.peer, ": nothing moves for balance",
                         pair.blind ? ", and flows keep their own ports" : ""));
  } else if (!probe::PortsSeenToChoose(discovery->hashing())) {
    AddHold(reply, "hashing",
            absl::StrCat("whether ports choose the path to ", pair.peer,
                         " was not seen: nothing moves for balance until the fabric's self-test has seen it, which "
                         "needs switches that answer traces"));
  }
}

void WhyView::AddFlowHolds(const FlowKey& key, const FlowEntry& flow, v1::WhyReply& reply) const {
  const int64_t now_ns = monotonic_.NowNs();
  const double left_s = deadlines_.FlowSecondsLeft(key, now_ns);
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  if (qp && rdma::OwnFailover(*qp)) {
    AddHold(reply, "own_failover", "not moved by the agent: " + rdma::CannotMove(*qp));
  } else if ((flow.tx.flags & CW_STEER_HARD_LOCKED) != 0) {
    AddHold(reply, "hard_lock", "locked hard by an operator: it stays even when its path is dead", left_s);
  } else if ((flow.tx.flags & CW_STEER_LOCKED) != 0) {
    AddHold(reply, "lock", "locked by an operator: it leaves a dead path only", left_s);
  }
  const bool acts = asks_.allowed().ActsAtAll() && !flow.stays_native;
  if ((flow.tx.flags & CW_STEER_MANUAL) != 0 && !acts) {
    AddHold(reply, "manual", "placed by an operator, which counts again when the mode acts", left_s);
  } else if ((flow.tx.flags & CW_STEER_MANUAL) != 0) {
    AddHold(reply, "manual", "placed by an operator: the agent moves it off a dead or drained path only", left_s);
  }
  if (const uint8_t wanted = PendingSlot(flow.tx); wanted != CW_SLOT_NONE && acts) {
    AddHold(
        reply, "pending",
        absl::StrFormat("a move to path %d waits for %s", wanted,
                        flow.tx.want_force != 0 ? "its next packet" : "a pause or a moment without packets in flight"));
  }
  const PairState* pair = FindIn(pairs_, flow.tx.pair);
  if (pair == nullptr) return;
  AddPairHolds(*pair, &key, reply);
  const uint8_t slot = flow.SlotOfPackets(asks_.allowed().ActsAtAll());
  if (slot < CW_MAX_SLOTS) AddPathHolds(*pair, slot, reply);
}

// What is wrong with the path that a flow is on.
void WhyView::AddPathHolds(const PairState& pair, uint8_t slot, v1::WhyReply& reply) const {
  if (probe::Load(mesh_.shared(pair.index)->slot[slot].state) == CW_SLOT_DEAD) {
    AddHold(reply, "dead",
            absl::StrFormat("path %d is dead; it is left where the mode allows it and another path lives", slot));
  }
  if ((pair.drained >> slot & 1) != 0)
    AddHold(reply, "drained", absl::StrFormat("path %d is drained by an operator; see cwctl drain list", slot));
}

std::optional<v1::WhyReply> WhyView::OfOwned(const std::string& id) const {
  const std::optional<FlowKey> found = owners_.Find(id);
  if (!found) return std::nullopt;
  const FlowKey key = *found;
  const std::optional<rdma::QpInfo> qp = owners_.Owned(key);
  v1::WhyReply reply;
  reply.set_mode(ToApi(asks_.allowed().mode()));
  *reply.mutable_flow() = flows_view_.OfUnseen(*qp, rdma::NativePortOf(*qp, ""));
  reply.set_placement(PlacementOfOwned(*qp, owners_.book().Of(*qp)));
  asks_.collective(key, reply);
  if (rdma::OwnFailover(*qp)) {
    AddHold(reply, "own_failover", "not moved by the agent: " + owners_.WhyNot(*qp));
  } else if (const std::string why_not = owners_.WhyNot(*qp); !why_not.empty()) {
    AddHold(reply, "cannot_move", "not moved while it is connected: " + why_not);
  }
  const rdma::MoveBook::Entry entry = owners_.book().Of(*qp);
  if (entry.manual)
    AddHold(reply, "manual", "placed by an operator: the agent moves it off a bad or drained path only");
  if (entry.asked)
    AddHold(reply, "pending",
            absl::StrFormat("its owner's library was asked to move it (%s)", rdma::MoveWhyName(entry.asked->why)));
  if (entry.last_error != 0)
    AddHold(reply, "refused", "its last move that was refused: " + rdma::ErrnoText(entry.last_error));
  const std::optional<uint32_t> index = mesh_.Find({qp->laddr, qp->raddr});
  PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (pair == nullptr) return reply;
  AddPairHolds(*pair, &key, reply);
  const uint8_t slot = owners_.SlotOf(*qp, qp->udp_sport);
  if (slot >= CW_MAX_SLOTS) return reply;
  AddPathHolds(*pair, slot, reply);
  *reply.mutable_path() = PathOf(*pair, slot);
  return reply;
}

absl::StatusOr<v1::WhyReply> WhyView::OfFlow(const std::string& id) const {
  v1::WhyReply reply;
  reply.set_mode(ToApi(asks_.allowed().mode()));
  for (const auto* book : {&flows_.sent, &flows_.received}) {
    for (const auto& [key, flow] : *book) {
      if (key.Id().ToString() != id) continue;
      *reply.mutable_flow() = flows_view_.Of(key, flow);
      reply.set_placement(Placement(flow, asks_.allowed().ActsAtAll() && !flow.stays_native));
      if (flow.received) return reply;
      asks_.collective(key, reply);
      AddFlowHolds(key, flow, reply);
      *reply.mutable_rule() = RuleView(asks_.rule(key));
      const uint8_t slot = flow.SlotOfPackets(asks_.allowed().ActsAtAll());
      PairState* pair = FindIn(pairs_, flow.tx.pair);
      if (pair != nullptr && slot < CW_MAX_SLOTS) *reply.mutable_path() = PathOf(*pair, slot);
      return reply;
    }
  }
  if (std::optional<v1::WhyReply> owned = OfOwned(id); owned) return *std::move(owned);
  return absl::NotFoundError(absl::StrCat("no flow ", id, "; see cwctl qps"));
}

absl::StatusOr<v1::WhyReply> WhyView::OfPath(uint32_t index, uint32_t slot) const {
  PairState* pair = FindIn(pairs_, index);
  if (pair == nullptr || slot >= CW_MAX_SLOTS || mesh_.slots(index).port(static_cast<uint8_t>(slot)) == 0)
    return absl::NotFoundError("no such path; see cwctl paths");
  v1::WhyReply reply;
  reply.set_mode(ToApi(asks_.allowed().mode()));
  const auto s = static_cast<uint8_t>(slot);
  *reply.mutable_path() = PathOf(*pair, s);
  if (reply.path().path().state() == v1::PATH_STATE_DEAD)
    AddHold(reply, "dead", "it is dead: no probe of the last rounds arrived, and no flow is put there");
  if ((pair->damped >> s & 1) != 0) {
    AddHold(reply, "damped",
            absl::StrFormat("it died, flapped or lost packets: no flow is put there while its penalty is %.0f",
                            reply.path().penalty()),
            reply.path().reuse_s());
  }
  if (reply.path().path().lossy())
    AddHold(reply, "lossy", "it alone loses packets, or data while probes pass: flows leave it until it is clean");
  if ((pair->drained >> s & 1) != 0) AddHold(reply, "drained", "an operator keeps it free; see cwctl drain list");
  if (!mesh_.slots(index).is_path(s))
    AddHold(reply, "not_a_path", "it is only probed because a flow chose this port itself");
  AddPairHolds(*pair, nullptr, reply);
  return reply;
}

absl::StatusOr<v1::WhyReply> WhyView::About(const std::string& what) const {
  v1::QpsRequest all;
  all.set_received(true);
  const absl::StatusOr<api::What> found =
      api::ResolveWhat(paths_view_.All(v1::PathsRequest()), flows_view_.All(all), what);
  if (!found.ok()) return found.status();
  return found->path ? OfPath(found->path->pair, found->path->slot) : OfFlow(found->flow);
}

}  // namespace cw::agent
