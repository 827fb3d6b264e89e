// SPDX-License-Identifier: Apache-2.0
// Why a flow is where it is, and what is known of a path.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/placement.h"
#include "userspace/agent/scopes.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/api/path_ref.h"
#include "userspace/control/explain.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

constexpr size_t kEventsShown = 8;

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

// The newest that `fits`, oldest first, with their ages.
template <typename Fits>
void AddEvents(const std::vector<v1::Event>& events, Fits fits, v1::WhyReply& reply) {
  std::vector<const v1::Event*> chosen;
  for (auto event = events.rbegin(); event != events.rend() && chosen.size() < kEventsShown; ++event) {
    if (fits(*event)) chosen.push_back(&*event);
  }
  const int64_t now_unix_ns = absl::GetCurrentTimeNanos();
  for (auto event = chosen.rbegin(); event != chosen.rend(); ++event) {
    v1::WhyEvent* out = reply.add_events();
    *out->mutable_event() = **event;
    out->set_ago_s(std::max(0.0, static_cast<double>(now_unix_ns - (*event)->time_unix_ns()) / 1e9));
  }
}

}  // namespace

v1::WhyPath Agent::MakeWhyPathOf(PairState& pair, uint8_t slot) {
  const int64_t now_ns = MonotonicNs();
  v1::WhyPath out;
  const v1::Pair whole = paths_view_->Pair(pair);
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
    if (flow.tx.pair == pair.index && flow.SlotOfPackets(modes_->ActsAtAll()) == slot)
      out.add_flows(key.Id().ToString());
  }
  std::sort(out.mutable_flows()->begin(), out.mutable_flows()->end());
  return out;
}

// What holds for every flow to the peer.
void Agent::AddPairHolds(const PairState& pair, const FlowKey* flow, v1::WhyReply& reply) {
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  if (modes_->allowed() != Allowed(Mode::kOptimize)) {
    const char* means = modes_->mode() == Mode::kOff       ? "every flow is on its native port"
                        : modes_->mode() == Mode::kObserve ? "moves are decided and logged, none is made"
                        : modes_->mode() == Mode::kProtect
                            ? "flows leave dead paths only, and are not moved for balance"
                            : "each capability by itself";
    const double left_s = deadlines_.mode() ? static_cast<double>(deadlines_.mode()->at_ns - MonotonicNs()) / 1e9 : 0.0;
    AddHold(reply, "mode", absl::StrCat("mode ", modes_->allowed().ToString(), ": ", means), std::max(left_s, 0.0));
  }
  for (const Scopes::Hold& hold : scopes_->HoldsOf(pair, flow)) AddHold(reply, "scope", hold.text, hold.left_s);
  if (modes_->Acts(Capability::kBalance) && !breaker_->MayBalance())
    AddHold(reply, "breaker", absl::StrCat("nothing moves for balance: ", breaker_->why()));
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

void Agent::AddFlowHolds(const FlowKey& key, const FlowEntry& flow, v1::WhyReply& reply) {
  const int64_t now_ns = MonotonicNs();
  const double left_s = deadlines_.FlowSecondsLeft(key, now_ns);
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  if (qp && rdma::OwnFailover(*qp)) {
    AddHold(reply, "own_failover", "not moved by the agent: " + rdma::CannotMove(*qp));
  } else if ((flow.tx.flags & CW_STEER_HARD_LOCKED) != 0) {
    AddHold(reply, "hard_lock", "locked hard by an operator: it stays even when its path is dead", left_s);
  } else if ((flow.tx.flags & CW_STEER_LOCKED) != 0) {
    AddHold(reply, "lock", "locked by an operator: it leaves a dead path only", left_s);
  }
  const bool acts = modes_->ActsAtAll() && !flow.stays_native;
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
  const PairState* pair = FindPair(flow.tx.pair);
  if (pair == nullptr) return;
  AddPairHolds(*pair, &key, reply);
  const uint8_t slot = flow.SlotOfPackets(modes_->ActsAtAll());
  if (slot < CW_MAX_SLOTS) AddPathHolds(*pair, slot, reply);
}

// What is wrong with the path that a flow is on.
void Agent::AddPathHolds(const PairState& pair, uint8_t slot, v1::WhyReply& reply) {
  if (probe::Load(dataplane_->pairs()[pair.index].slot[slot].state) == CW_SLOT_DEAD) {
    AddHold(reply, "dead",
            absl::StrFormat("path %d is dead; it is left where the mode allows it and another path lives", slot));
  }
  if ((pair.drained >> slot & 1) != 0)
    AddHold(reply, "drained", absl::StrFormat("path %d is drained by an operator; see cwctl drain list", slot));
}

std::optional<v1::WhyReply> Agent::WhyOwned(const std::string& id) {
  const std::optional<FlowKey> found = owner_mover_->Find(id);
  if (!found) return std::nullopt;
  const FlowKey key = *found;
  const std::optional<rdma::QpInfo> qp = owner_mover_->Owned(key);
  v1::WhyReply reply;
  reply.set_mode(ToApi(modes_->mode()));
  *reply.mutable_flow() = flows_view_->OfUnseen(*qp, rdma::NativePortOf(*qp, ""));
  reply.set_placement(PlacementOfOwned(*qp, owner_mover_->book().Of(*qp)));
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
  AddPairHolds(*pair, &key, reply);
  const uint8_t slot = owner_mover_->SlotOf(*qp, qp->udp_sport);
  if (slot >= CW_MAX_SLOTS) return reply;
  AddPathHolds(*pair, slot, reply);
  *reply.mutable_path() = MakeWhyPathOf(*pair, slot);
  return reply;
}

absl::StatusOr<v1::WhyReply> Agent::MakeWhyFlow(const std::string& id) {
  v1::WhyReply reply;
  reply.set_mode(ToApi(modes_->mode()));
  for (const auto* book : {&flows_.sent, &flows_.received}) {
    for (const auto& [key, flow] : *book) {
      if (key.Id().ToString() != id) continue;
      *reply.mutable_flow() = flows_view_->Of(key, flow);
      reply.set_placement(Placement(flow, modes_->ActsAtAll() && !flow.stays_native));
      if (flow.received) return reply;
      jobs_->FillCollective(key, reply);
      AddFlowHolds(key, flow, reply);
      *reply.mutable_rule() = RuleView(control::Explain(*contention_, key));
      const uint8_t slot = flow.SlotOfPackets(modes_->ActsAtAll());
      PairState* pair = FindPair(flow.tx.pair);
      if (pair != nullptr && slot < CW_MAX_SLOTS) *reply.mutable_path() = MakeWhyPathOf(*pair, slot);
      return reply;
    }
  }
  if (std::optional<v1::WhyReply> owned = WhyOwned(id); owned) return *std::move(owned);
  return absl::NotFoundError(absl::StrCat("no flow ", id, "; see cwctl qps"));
}

absl::StatusOr<v1::WhyReply> Agent::MakeWhyPath(uint32_t index, uint32_t slot) {
  PairState* pair = FindPair(index);
  if (pair == nullptr || slot >= CW_MAX_SLOTS || engine_->mesh().slots(index).port(static_cast<uint8_t>(slot)) == 0)
    return absl::NotFoundError("no such path; see cwctl paths");
  v1::WhyReply reply;
  reply.set_mode(ToApi(modes_->mode()));
  const auto s = static_cast<uint8_t>(slot);
  *reply.mutable_path() = MakeWhyPathOf(*pair, s);
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
  if (!engine_->mesh().slots(index).is_path(s))
    AddHold(reply, "not_a_path", "it is only probed because a flow chose this port itself");
  AddPairHolds(*pair, nullptr, reply);
  return reply;
}

absl::StatusOr<v1::WhyReply> Agent::MakeWhy(const std::string& text) {
  v1::QpsRequest all;
  all.set_received(true);
  flow_reader_->ReadReceived();
  const absl::StatusOr<api::What> what =
      api::ResolveWhat(paths_view_->All(v1::PathsRequest()), flows_view_->All(all), text);
  if (!what.ok()) return what.status();
  return what->path ? MakeWhyPath(what->path->pair, what->path->slot) : MakeWhyFlow(what->flow);
}

absl::StatusOr<v1::WhyReply> Agent::Why(const v1::WhyRequest& request, const api::Caller&) {
  absl::StatusOr<v1::WhyReply> reply =
      loop_->Call<v1::WhyReply>([this, what = request.what()] { return MakeWhy(what); });
  if (!reply.ok()) return reply;
  const absl::StatusOr<std::vector<v1::Event>> events = Events(v1::EventsRequest(), absl::ZeroDuration());
  if (!events.ok()) return reply;
  const int slot = static_cast<int>(reply->path().path().slot());
  const auto of_flow = [&](const v1::Event& event) { return event.flow() == reply->flow().id(); };
  const auto of_path = [&](const v1::Event& event) {
    if (event.peer() != reply->path().peer()) return false;
    return event.slot() == slot || event.to_slot() == slot || (event.type() == "fabric" && event.slot() < 0);
  };
  if (reply->has_flow())
    AddEvents(*events, of_flow, *reply);
  else
    AddEvents(*events, of_path, *reply);
  return reply;
}

}  // namespace cw::agent
