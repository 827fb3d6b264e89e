// SPDX-License-Identifier: Apache-2.0
// Moves for balance, from the rule's decision to the kernel's wish: both candidates are probed once more in between.
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/control/contention_rules.h"

namespace cw::agent {
namespace {

// So many rounds at the active interval are waited for; not less, as a queue of the lab or of a slow link is longer.
constexpr int kRounds = 4;
constexpr absl::Duration kLeastWait = absl::Milliseconds(4);

}  // namespace

// Half a window at most: the next one is decided with what came of it.
absl::Duration Agent::LastLookWait() const {
  return std::min(std::max(kRounds * options_.config.probe.active_interval, kLeastWait), Window() / 2);
}

void Agent::LookOnceMore(const control::Move& move, uint32_t pair) {
  const absl::Duration wait = LastLookWait();
  last_looks_.Begin({.move = move,
                     .pair = pair,
                     .asked_ns = NowNs(),
                     .due_ns = MonotonicNs() + absl::ToInt64Nanoseconds(wait),
                     .owd_ns = {}});
  engine_->Hurry(pair, absl::ToInt64Nanoseconds(wait));
  loop_->After(wait, [this] { SettleMoves(MonotonicNs()); });
}

// Whether a flow may be put on the slot.
bool Agent::IsUsable(const PairState& pair, uint8_t s) const {
  if (s >= CW_MAX_SLOTS) return false;
  const uint8_t state = probe::Load(dataplane_->pairs()[pair.index].slot[s].state);
  return engine_->mesh().slots(pair.index).is_path(s) && (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) &&
         (pair.blocked >> s & 1) == 0;
}

// What the rule decided still holds: the flow is there, nobody else has moved or locked it, paths are known.
bool Agent::StillToBeMoved(const control::Move& move, const PairState& pair) const {
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  const absl::StatusOr<cw_tx_flow> tx = dataplane_->tx_flows().Lookup(ToMap(move.flow));
  if (!MayBalance() || discovery == nullptr || !tx.ok()) return false;
  if (!discovery->table().valid || !probe::PortsSeenToChoose(discovery->hashing())) return false;
  const bool held = (tx->flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) != 0;
  const uint8_t slot = tx->port != 0 ? tx->slot : tx->native_slot;
  return !held && tx->want_slot == CW_SLOT_NONE && slot == move.from;
}

void Agent::SettleMoves(int64_t now_ns) {
  if (last_looks_.empty()) return;
  ReadProbes();
  for (const LastLook& look : last_looks_.TakeDue(now_ns)) {
    PairState* pair = FindPair(look.pair);
    if (pair == nullptr || !(pair->key == look.move.pair)) continue;
    const auto see = [&](size_t candidate, uint8_t s) {
      const int64_t base_ns = s < CW_MAX_SLOTS ? pair->slot[s].forward.BaseNs() : INT64_MAX;
      return look.Seen(candidate, IsUsable(*pair, s), base_ns == INT64_MAX ? 0 : static_cast<double>(base_ns));
    };
    const control::Reprobe seen{.pair = look.move.pair,
                                .flow = look.move.flow,
                                .stays = StillToBeMoved(look.move, *pair),
                                .candidates = {see(0, look.move.to), see(1, look.move.second)}};
    last_looks_.Keep(seen);
    const control::ContentionRules& rules = control::RulesOf(*contention_);
    const control::Settled settled = control::Settle(rules, seen);
    if (settled.to != CW_SLOT_NONE) {
      MakeMove(control::SettledMove(rules, look.move, seen, settled), look.pair);
    } else {
      TellGivenUp(look.move, seen);
    }
  }
}

void Agent::TellGivenUp(const control::Move& move, const control::Reprobe& seen) {
  Log({.type = "decision",
       .text = absl::StrFormat("queue pair to %s qp 0x%x is not moved from path %d: %s", peer_names_.Of(move.flow.dst),
                               move.flow.dqpn, move.from,
                               seen.stays ? "neither path that was chosen from is to be used any more"
                                          : "it was moved, locked or ended just before, or moves are not made now"),
       .flow = move.flow.Id().ToString(),
       .peer = peer_names_.Of(move.flow.dst),
       .slot = move.from,
       .evidence = move.evidence});
}

void Agent::TellMove(const control::Move& move, bool act) {
  telemetry::Event event{
      .type = "decision",
      .text = absl::StrFormat("%s queue pair to %s qp 0x%x from path %d to path %d: %s", act ? "moving" : "would move",
                              peer_names_.Of(move.flow.dst), move.flow.dqpn, move.from, move.to, move.why)};
  event.flow = move.flow.Id().ToString();
  event.peer = peer_names_.Of(move.flow.dst);
  event.slot = move.from;
  event.to_slot = move.to;
  event.dry = !act;
  event.evidence = move.evidence;
  event.evidence.push_back({"gain", absl::StrFormat("%.2f", move.gain)});
  Log(std::move(event));
}

void Agent::MakeMove(const control::Move& move, uint32_t pair) {
  TellMove(move, true);
  const uint16_t port = engine_->mesh().slots(pair).port(move.to);
  if (dataplane_->flow_editor().Want(ToMap(move.flow), move.to, port, move.force).ok())
    balance_.wishes[move.flow] = move.to;
}

}  // namespace cw::agent
