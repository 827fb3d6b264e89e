// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/moves.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "userspace/agent/flow_book.h"

namespace cw::agent {
namespace {

// Not less, as a queue of the lab or of a slow link is longer.
constexpr int kRounds = 4;
constexpr absl::Duration kLeastWait = absl::Milliseconds(4);
constexpr int64_t kDryEventNs = 10'000'000'000;  // a flow's wish is logged at most this often

}  // namespace

absl::Duration LastLookWait(absl::Duration active_interval, absl::Duration window) {
  return std::min(std::max(kRounds * active_interval, kLeastWait), window / 2);
}

bool IsUsable(const PairState& pair, const probe::Mesh& mesh, uint8_t s) {
  if (s >= CW_MAX_SLOTS) return false;
  const uint8_t state = probe::Load(mesh.shared(pair.index)->slot[s].state);
  return mesh.slots(pair.index).is_path(s) && (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) &&
         (pair.blocked >> s & 1) == 0;
}

void BalanceMoves::Apply(const control::Move& move) {
  const std::optional<uint32_t> index = mesh_.Find(move.pair);
  if (!index) return;
  if (!breaker_.MayBalance() || !Acts(move.flow, *index)) return TellDry(move);
  if (move.second != CW_SLOT_NONE) return LookOnceMore(move, *index);
  Make(move, *index);
}

bool BalanceMoves::Acts(const FlowKey& flow, uint32_t pair) const {
  return asks_.allowed(pair, flow).Acts(Capability::kBalance);
}

void BalanceMoves::TellDry(const control::Move& move) {
  if (!asks_.allowed().Decides(Capability::kBalance)) return;
  dry_run_.TellMove(move);
  const int64_t now_ns = monotonic_.NowNs();
  int64_t& last_ns = dry_logged_ns_[move.flow];
  if (last_ns != 0 && now_ns - last_ns < kDryEventNs) return;
  last_ns = now_ns;
  Tell(move, false);
}

void BalanceMoves::LookOnceMore(const control::Move& move, uint32_t pair) {
  const absl::Duration wait = asks_.look();
  looks_.Begin({.move = move,
                .pair = pair,
                .asked_ns = local_.NowNs(),
                .due_ns = monotonic_.NowNs() + absl::ToInt64Nanoseconds(wait),
                .owd_ns = {}});
  asks_.hurry(pair, wait);
  timers_.After(wait, [this] { Settle(monotonic_.NowNs()); });
}

// What the rule decided still holds: the flow is there, nobody else has moved or locked it, paths are known.
bool BalanceMoves::StillToBeMoved(const control::Move& move, const PairState& pair) const {
  const absl::StatusOr<cw_tx_flow> tx = flows_.Sent(move.flow);
  if (!breaker_.MayBalance() || !Acts(move.flow, pair.index) || !tx.ok() || !asks_.paths_known(pair.index))
    return false;
  const bool held = (tx->flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) != 0;
  const uint8_t slot = tx->port != 0 ? tx->slot : tx->native_slot;
  return !held && tx->want_slot == CW_SLOT_NONE && slot == move.from;
}

void BalanceMoves::Settle(int64_t now_ns) {
  if (looks_.empty()) return;
  asks_.read_probes();
  for (const LastLook& look : looks_.TakeDue(now_ns)) Settle(look);
}

void BalanceMoves::Settle(const LastLook& look) {
  const PairState* pair = FindIn(pairs_, look.pair);
  if (pair == nullptr || !(pair->key == look.move.pair)) return;
  const auto see = [&](size_t candidate, uint8_t s) {
    const int64_t base_ns = s < CW_MAX_SLOTS ? pair->slot[s].forward.BaseNs() : INT64_MAX;
    return look.Seen(candidate, IsUsable(*pair, mesh_, s), base_ns == INT64_MAX ? 0 : static_cast<double>(base_ns));
  };
  const control::Reprobe seen{.pair = look.move.pair,
                              .flow = look.move.flow,
                              .stays = StillToBeMoved(look.move, *pair),
                              .candidates = {see(0, look.move.to), see(1, look.move.second)}};
  looks_.Keep(seen);
  const control::ContentionRules& rules = control::RulesOf(rule_);
  const control::Settled settled = control::Settle(rules, seen);
  if (settled.to == CW_SLOT_NONE) return TellGivenUp(look.move, seen);
  Make(control::SettledMove(rules, look.move, seen, settled), look.pair);
}

bool BalanceMoves::OnMade(const cw_ev_move& move) {
  const auto wish = wishes_.find(FromMap(move.key));
  if (wish == wishes_.end()) return false;
  const bool made = move.reason != CW_MOVE_DEAD && wish->second == move.to_slot;
  wishes_.erase(wish);
  return made;
}

void BalanceMoves::TakeBack() {
  for (const auto& [flow, slot] : wishes_) (void)flows_.Want(flow, CW_SLOT_NONE, 0, false);
  wishes_.clear();
}

void BalanceMoves::TellGivenUp(const control::Move& move, const control::Reprobe& seen) {
  events_.Log(
      {.type = "decision",
       .text = absl::StrFormat("queue pair to %s qp 0x%x is not moved from path %d: %s", names_.Of(move.flow.dst),
                               move.flow.dqpn, move.from,
                               seen.stays ? "neither path that was chosen from is to be used any more"
                                          : "it was moved, locked or ended just before, or moves are not made now"),
       .flow = move.flow.Id().ToString(),
       .peer = names_.Of(move.flow.dst),
       .slot = move.from,
       .evidence = move.evidence});
}

void BalanceMoves::Tell(const control::Move& move, bool act) {
  telemetry::Event event{
      .type = "decision",
      .text = absl::StrFormat("%s queue pair to %s qp 0x%x from path %d to path %d: %s", act ? "moving" : "would move",
                              names_.Of(move.flow.dst), move.flow.dqpn, move.from, move.to, move.why)};
  event.flow = move.flow.Id().ToString();
  event.peer = names_.Of(move.flow.dst);
  event.slot = move.from;
  event.to_slot = move.to;
  event.dry = !act;
  event.evidence = move.evidence;
  event.evidence.push_back({"pair", PairText(move.flow.src, move.flow.dst)});
  event.evidence.push_back({"gain", absl::StrFormat("%.2f", move.gain)});
  events_.Log(std::move(event));
}

void BalanceMoves::Make(const control::Move& move, uint32_t pair) {
  Tell(move, true);
  if (flows_.Want(move.flow, move.to, mesh_.slots(pair).port(move.to), move.force).ok()) wishes_[move.flow] = move.to;
}

}  // namespace cw::agent
