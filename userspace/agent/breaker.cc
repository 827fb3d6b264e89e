// SPDX-License-Identifier: Apache-2.0
// The breaker of moves for balance: control/breaker.h judges, here the moves are undone and operators told.
#include "userspace/control/breaker.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

constexpr int64_t kLookNs = 50'000'000;
constexpr int64_t kDrains = 4;  // times the queue's delay: it drains, and what is resent meanwhile goes back once more

}  // namespace

void Agent::OpenBreaker() {
  const config::SteeringConfig& steering = options_.config.steering;
  if (!steering.breaker) return;
  breaker_ = std::make_unique<control::Breaker>(
      control::BreakerRules{.hold_ns = absl::ToInt64Nanoseconds(steering.breaker_hold)});
}

bool Agent::MayBalance() const {
  return modes_->Acts(Capability::kBalance) && (breaker_ == nullptr || !breaker_->tripped());
}

// What the kernel did: a flow left a dead path, or a wish came true, perhaps one of balance.
void Agent::OnMadeMove(const cw_ev_move& move) {
  const FlowKey key = FromMap(move.key);
  if (move.reason == CW_MOVE_DEAD) {
    LeftBadPath(key, move.pair, move.from_slot, move.from_port, move.to_slot, move.to_port);
    balance_.wishes.erase(key);
    if (breaker_ != nullptr) breaker_->Forget(key);
    return;
  }
  const auto wish = balance_.wishes.find(key);
  if (wish == balance_.wishes.end()) return;
  const bool made = wish->second == move.to_slot;
  balance_.wishes.erase(wish);
  if (!made || breaker_ == nullptr) return;
  const PairState* pair = FindPair(move.pair);
  const bool waited = move.reason != CW_MOVE_FORCED && move.reason != CW_MOVE_GAP;  // a gap is no queue's length
  const bool overtakes = !waited && pair != nullptr && move.from_slot < kMaxSlots;
  breaker_->Moved({.flow = key,
                   .pair = move.pair,
                   .from = {.slot = move.from_slot, .port = move.from_port},
                   .to = {.slot = move.to_slot, .port = move.to_port},
                   .spill_ns = overtakes ? kDrains * static_cast<int64_t>(pair->slot[move.from_slot].queue_ns) : 0},
                  MonotonicNs());
}

void Agent::StepBreaker(int64_t now_ns) {
  if (breaker_ == nullptr || now_ns - balance_.seen_ns < kLookNs) return;
  balance_.seen_ns = now_ns;
  if (breaker_->Rearmed(now_ns)) {
    Log({.type = "breaker",
         .severity = telemetry::Severity::kNotice,
         .text = "moves for balance are made again: the breaker's hold is over"});
  }
  if (!modes_->Acts(Capability::kBalance)) return;
  std::vector<control::BreakerFlow> flows;
  for (const auto& [key, flow] : flows_.sent) {
    flows.push_back({.key = key,
                     .bytes = flow.flow().bytes,
                     .acks = flow.answers.acks,
                     .naks = flow.answers.seq_naks,
                     .answers_known = flow.answers.known,
                     .in_flight = flow.tx.acked_valid != 0 && flow.tx.acked_psn != flow.flow().req.next});
  }
  breaker_->See(flows, now_ns);
  for (const control::BreakerVerdict& verdict : breaker_->TakeVerdicts()) {
    Log({.type = "breaker",
         .severity = verdict.harmful ? telemetry::Severity::kNotice : telemetry::Severity::kInfo,
         .text = absl::StrCat(verdict.harmful ? "a move did harm: " : "a move did no harm: ", verdict.text),
         .flow = verdict.move.flow.Id().ToString(),
         .peer = peer_names_.Of(verdict.move.flow.dst),
         .slot = verdict.move.from.slot == CW_SLOT_NONE ? -1 : verdict.move.from.slot,
         .to_slot = verdict.move.to.slot,
         .evidence = verdict.evidence});
  }
  if (const auto trip = breaker_->TakeTrip(now_ns)) Trip(*trip);
}

// Those flows that still are where the move put them go back at once: where they are does harm.
void Agent::Trip(const control::BreakerTrip& trip) {
  ++balance_.trips;
  balance_.why = trip.text;
  size_t undone = 0;
  for (const auto& [key, slot] : balance_.wishes) {
    (void)dataplane_->flow_editor().Want(ToMap(key), CW_SLOT_NONE, 0, false);
  }
  balance_.wishes.clear();
  for (const control::BreakerMove& move : trip.undo) {
    const auto flow = flows_.sent.find(move.flow);
    const PairState* pair = FindPair(move.pair);
    if (flow == flows_.sent.end() || pair == nullptr || flow->second.PathSlot() != move.to.slot) continue;
    if ((flow->second.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) != 0) continue;
    if (move.from.slot >= CW_MAX_SLOTS || (pair->blocked >> move.from.slot & 1) != 0) continue;
    undone += dataplane_->flow_editor().Want(ToMap(move.flow), move.from.slot, move.from.port, true).ok();
  }
  Log({.type = "breaker",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrFormat("%s: %d flows go back, and balance only observes %s", trip.text, undone,
                               options_.config.steering.breaker_hold > absl::ZeroDuration()
                                   ? absl::StrCat("for ", absl::FormatDuration(options_.config.steering.breaker_hold),
                                                  " or until cwctl steer breaker reset")
                                   : std::string("until cwctl steer breaker reset")),
       .evidence = {{"moves_judged", absl::StrCat(trip.judged)}, {"moves_harmful", absl::StrCat(trip.harmful)}}});
}

void Agent::AddBreaker(api::v1::StatusReply& reply, int64_t now_ns) const {
  api::v1::BreakerStatus* out = reply.mutable_breaker();
  out->set_enabled(breaker_ != nullptr);
  out->set_trips(balance_.trips);
  if (breaker_ == nullptr) return;
  out->set_tripped(breaker_->tripped());
  out->set_judged(static_cast<uint32_t>(breaker_->Judged(now_ns)));
  out->set_harmful(static_cast<uint32_t>(breaker_->Harmful(now_ns)));
  if (!breaker_->tripped()) return;
  out->set_text(balance_.why);
  if (const int64_t at_ns = breaker_->RearmsAtNs(); at_ns != 0)
    out->set_rearms_s(std::max(static_cast<double>(at_ns - now_ns) / 1e9, 0.001));
}

api::v1::ActionReply Agent::DoBreakerReset(const api::Caller& caller) {
  api::v1::ActionReply reply;
  if (breaker_ == nullptr || !breaker_->tripped()) {
    reply.set_effect(breaker_ == nullptr ? "there is no breaker (steering.breaker)" : "the breaker has not tripped");
    return reply;
  }
  breaker_->Reset();
  reply.set_effect(absl::StrCat("the breaker is armed again", MayBalance() ? ", and moves for balance are made" : ""));
  journal_.LogAct(caller, {.type = "breaker", .text = reply.effect()});
  return reply;
}

absl::StatusOr<api::v1::ActionReply> Agent::BreakerReset(const api::Caller& caller) {
  return loop_->Call<api::v1::ActionReply>(
      [this, caller]() -> absl::StatusOr<api::v1::ActionReply> { return DoBreakerReset(caller); });
}

}  // namespace cw::agent
