// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/breaker.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr int64_t kLookNs = 50'000'000;
constexpr int64_t kDrains = 4;  // times the queue's delay: it drains, and what is resent meanwhile goes back once more
constexpr uint8_t kHeld = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL;

}  // namespace

Breaker::Breaker(bool wanted, absl::Duration hold, const PairTable& pairs, const FlowBook& flows, FlowRecords& records,
                 const PeerNames& names, const Clock& monotonic, Journal& journal, Asks asks)
    : hold_(hold),
      pairs_(pairs),
      flows_(flows),
      records_(records),
      names_(names),
      monotonic_(monotonic),
      journal_(journal),
      asks_(std::move(asks)) {
  if (wanted) rule_.emplace(control::BreakerRules{.hold_ns = absl::ToInt64Nanoseconds(hold)});
}

void Breaker::SetHold(absl::Duration hold) {
  hold_ = hold;
  if (rule_) rule_->SetHold(absl::ToInt64Nanoseconds(hold));
}

void Breaker::Forget(const FlowKey& flow) {
  if (rule_) rule_->Forget(flow);
}

void Breaker::OnMoved(const cw_ev_move& move) {
  if (!rule_) return;
  const PairState* pair = FindIn(pairs_, move.pair);
  const bool waited = move.reason != CW_MOVE_FORCED && move.reason != CW_MOVE_GAP;  // a gap is no queue's length
  const bool overtakes = !waited && pair != nullptr && move.from_slot < kMaxSlots;
  rule_->Moved({.flow = FromMap(move.key),
                .pair = move.pair,
                .from = {.slot = move.from_slot, .port = move.from_port},
                .to = {.slot = move.to_slot, .port = move.to_port},
                .spill_ns = overtakes ? kDrains * static_cast<int64_t>(pair->slot[move.from_slot].queue_ns) : 0},
               monotonic_.NowNs());
}

void Breaker::Step(int64_t now_ns) {
  if (!rule_ || now_ns - seen_ns_ < kLookNs) return;
  seen_ns_ = now_ns;
  if (rule_->Rearmed(now_ns)) {
    journal_.Log({.type = "breaker",
                  .severity = telemetry::Severity::kNotice,
                  .text = "moves for balance are made again: the breaker's hold is over"});
  }
  if (!asks_.allowed().Acts(Capability::kBalance)) return;
  See(now_ns);
  for (const control::BreakerVerdict& verdict : rule_->TakeVerdicts()) Tell(verdict);
  if (const auto trip = rule_->TakeTrip(now_ns)) Trip(*trip);
}

void Breaker::See(int64_t now_ns) {
  std::vector<control::BreakerFlow> flows;
  for (const auto& [key, flow] : flows_.sent) {
    flows.push_back({.key = key,
                     .bytes = flow.flow().bytes,
                     .acks = flow.answers.acks,
                     .naks = flow.answers.seq_naks,
                     .answers_known = flow.answers.known,
                     .in_flight = flow.tx.acked_valid != 0 && flow.tx.acked_psn != flow.flow().req.next});
  }
  rule_->See(flows, now_ns);
}

void Breaker::Tell(const control::BreakerVerdict& verdict) {
  journal_.Log({.type = "breaker",
                .severity = verdict.harmful ? telemetry::Severity::kNotice : telemetry::Severity::kInfo,
                .text = absl::StrCat(verdict.harmful ? "a move did harm: " : "a move did no harm: ", verdict.text),
                .flow = verdict.move.flow.Id().ToString(),
                .peer = names_.Of(verdict.move.flow.dst),
                .slot = verdict.move.from.slot == CW_SLOT_NONE ? -1 : verdict.move.from.slot,
                .to_slot = verdict.move.to.slot,
                .evidence = verdict.evidence});
}

void Breaker::Trip(const control::BreakerTrip& trip) {
  ++trips_;
  why_ = trip.text;
  asks_.take_back();
  const auto undone =
      std::count_if(trip.undo.begin(), trip.undo.end(), [this](const auto& move) { return Undo(move); });
  const std::string until = "until cwctl steer breaker reset";
  journal_.Log(
      {.type = "breaker",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrFormat(
           "%s: %d flows go back, and balance only observes %s", trip.text, undone,
           hold_ > absl::ZeroDuration() ? absl::StrCat("for ", absl::FormatDuration(hold_), " or ", until) : until),
       .evidence = {{"moves_judged", absl::StrCat(trip.judged)}, {"moves_harmful", absl::StrCat(trip.harmful)}}});
}

// A flow that still is where the move put it goes back at once: where it is does harm.
bool Breaker::Undo(const control::BreakerMove& move) {
  const auto flow = flows_.sent.find(move.flow);
  const PairState* pair = FindIn(pairs_, move.pair);
  if (flow == flows_.sent.end() || pair == nullptr || flow->second.PathSlot() != move.to.slot) return false;
  if ((flow->second.tx.flags & kHeld) != 0) return false;
  if (move.from.slot >= CW_MAX_SLOTS || (pair->blocked >> move.from.slot & 1) != 0) return false;
  return records_.Want(move.flow, move.from.slot, move.from.port, true).ok();
}

void Breaker::AddTo(v1::BreakerStatus& out, int64_t now_ns) const {
  out.set_enabled(rule_.has_value());
  out.set_trips(trips_);
  if (!rule_) return;
  out.set_tripped(rule_->tripped());
  out.set_judged(static_cast<uint32_t>(rule_->Judged(now_ns)));
  out.set_harmful(static_cast<uint32_t>(rule_->Harmful(now_ns)));
  if (!rule_->tripped()) return;
  out.set_text(why_);
  if (const int64_t at_ns = rule_->RearmsAtNs(); at_ns != 0)
    out.set_rearms_s(std::max(static_cast<double>(at_ns - now_ns) / 1e9, 0.001));
}

v1::ActionReply Breaker::Reset(const api::Caller& caller) {
  v1::ActionReply reply;
  if (!rule_ || !rule_->tripped()) {
    reply.set_effect(rule_ ? "the breaker has not tripped" : "there is no breaker (steering.breaker)");
    return reply;
  }
  rule_->Reset();
  reply.set_effect(absl::StrCat("the breaker is armed again", MayBalance() ? ", and moves for balance are made" : ""));
  journal_.LogAct(caller, {.type = "breaker", .text = reply.effect()});
  return reply;
}

}  // namespace cw::agent
