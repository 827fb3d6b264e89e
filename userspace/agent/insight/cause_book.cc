// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/cause_book.h"

#include <algorithm>
#include <utility>

namespace cw::agent {
namespace {

using control::Cause;

constexpr uint32_t kUnderWay = 3;  // newest rounds of the peer, some of whose probes may still come
constexpr int64_t kTellAgainNs = 60'000'000'000;
constexpr uint32_t kNewNumbers = 1u << 20;  // rounds begin anew

uint32_t Volatile(const uint32_t& word) { return *const_cast<const volatile uint32_t*>(&word); }

// A slow sender may: one that sends in bursts is slow on the whole and collides while it sends.
bool Steers(Cause cause) { return cause != Cause::kIncast && cause != Cause::kSlowReceiver; }

}  // namespace

void CauseBook::SetRules(const control::CauseRules& rules) {
  rules_ = rules;
  for (auto& [nic, state] : nics_) state.SetRules(rules);
}

void CauseBook::Answered(uint32_t pair, uint8_t slot) {
  if (auto at = pairs_.find(pair); at != pairs_.end() && slot < kMaxSlots) ++at->second.slot[slot].answered;
}

void CauseBook::PeersPathDied(uint32_t pair, uint8_t slot) {
  if (auto at = pairs_.find(pair); at != pairs_.end() && slot < kMaxSlots) at->second.slot[slot].peer_dead = true;
}

void CauseBook::PathCarries(uint32_t pair, uint8_t slot, uint32_t largest_arrives) {
  if (auto at = pairs_.find(pair); at != pairs_.end() && slot < kMaxSlots)
    at->second.slot[slot].largest_arrives = largest_arrives;
}

// An idle pair has a round in every tenth window or so.
bool CauseBook::NothingNew(const Pair& pair, const control::PairObservation& seen, const cw_pair& shared) {
  const uint32_t round = Volatile(shared.cur_round);
  const bool counted = pair.rounds_known && pair.round == round && pair.before_round == round;
  if (!counted || pair.peer_round != Volatile(shared.peer_round) - kUnderWay) return false;
  return std::all_of(seen.paths.begin(), seen.paths.end(), [](const auto& path) { return path.queue_samples == 0; });
}

void CauseBook::LookAtPair(uint32_t index, const control::PairObservation& seen, const cw_pair& shared) {
  Pair& pair = pairs_[index];
  if (NothingNew(pair, seen, shared)) return;
  pair.key = seen.pair;
  const uint32_t round = Volatile(shared.cur_round);
  if (!pair.rounds_known || round - pair.window_round > kNewNumbers) {
    pair.before_round = pair.window_round = round;
    pair.rounds_known = true;
    for (Slot& slot : pair.slot) slot.present = false;
  } else {
    pair.before_round = pair.round;
  }
  pair.round = round;
  std::array<bool, kMaxSlots> here{};
  for (const control::PathObservation& path : seen.paths) {
    Slot& slot = pair.slot[path.slot];
    const uint8_t state = shared.slot[path.slot].state;
    here[path.slot] = state == CW_SLOT_UP || state == CW_SLOT_SUSPECT || state == CW_SLOT_DEAD;
    slot.dead = state == CW_SLOT_DEAD;
    slot.queue_sum += path.queue_ns * path.queue_samples;
    slot.queue_samples += path.queue_samples;
    slot.ecn_samples += path.ecn_samples;
    slot.marked += path.marked;
    slot.base_ns = path.base_ns;
    slot.last_link = path.links.empty() ? 0 : path.links.back();
  }
  for (uint8_t s = 0; s < kMaxSlots; ++s) pair.slot[s].present = pair.slot[s].present && here[s];
  CountPeer(pair, shared);
}

// The peer's probes of the last eight rounds, as far as they were not counted before. A round of which nothing arrived
// says nothing: the peer may have paused. Only slots that the peer has been probing since before these
// rounds count: what it gave up has not stopped.
void CauseBook::CountPeer(Pair& pair, const cw_pair& shared) {
  const uint32_t newest = Volatile(shared.peer_round);
  const uint32_t until = newest - kUnderWay;
  const uint32_t probed = Volatile(shared.peer_slots);
  const uint32_t expected = probed & pair.peer_slots;
  pair.peer_slots = probed;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    if ((probed >> s & 1) == 0) pair.slot[s].peer_heard_ever = false;
  }
  if (until - pair.peer_round > kNewNumbers) {  // also when it went back
    pair.peer_round = until;
    return;
  }
  const uint32_t first = std::max(pair.peer_round + 1, newest - (CW_ROUNDS - 1));
  for (uint32_t round = first; static_cast<int32_t>(until - round) >= 0; ++round) {
    const cw_round_mask& entry = shared.rcvd[round & (CW_ROUNDS - 1)];
    const uint32_t mask = entry.mask;
    if (entry.round != round || mask == 0) continue;
    for (uint8_t s = 0; s < kMaxSlots; ++s) {
      Slot& slot = pair.slot[s];
      const bool heard = (mask >> s & 1) != 0;
      if ((expected >> s & 1) == 0) continue;
      slot.peer_heard_ever = slot.peer_heard_ever || heard;
      if (heard) slot.peer_dead = false;
      if (!slot.peer_heard_ever) continue;
      ++slot.peer_sent;
      slot.peer_heard += heard ? 1 : 0;
    }
  }
  pair.peer_round = until;
}

void CauseBook::LookAtFlow(uint32_t index, const FlowLook& look) {
  auto pair = pairs_.find(index);
  if (pair == pairs_.end()) return;
  Totals& last = totals_[look.key];
  control::CauseFlow& flow = pair->second.flows[look.key];
  flow.key = look.key;
  if (last.known && look.packets >= last.look.packets) {
    flow.packets += look.packets - last.look.packets;
    flow.bytes += look.bytes - last.look.bytes;
    flow.cnps += look.cnps;  // of this look
    flow.acks_known = look.answers_known && last.look.answers_known;
    if (look.answers_known && last.look.answers_known && look.acks >= last.look.acks) {
      flow.acks += look.acks - last.look.acks;
      flow.rnr_naks += look.rnr_naks - last.look.rnr_naks;
      flow.seq_naks += look.seq_naks - last.look.seq_naks;
    }
    flow.gaps_known = look.gaps_known;
    flow.gaps_pending = look.gaps_pending;
    if (look.gaps > last.look.gaps) flow.gaps += look.gaps - last.look.gaps;
    if (look.missing > last.look.missing) flow.missing += look.missing - last.look.missing;
    flow.moved = flow.moved || look.slot != last.look.slot;
    if (look.in_flight >= 0) {
      flow.in_flight += static_cast<double>(look.in_flight);  // a sum until the window ends
      ++flow.looks;
    }
  }
  flow.slot = look.slot;
  flow.other_class = look.other_class;
  flow.largest = look.largest;
  last = {look, true, true};
}

control::CausePair CauseBook::Take(Pair& pair, double reverse_ns, bool lossless) {
  control::CausePair out{.pair = pair.key, .reverse_ns = reverse_ns};
  const uint32_t sent = pair.before_round - pair.window_round;
  pair.window_round = pair.before_round;
  for (uint8_t s = 0; s < kMaxSlots; ++s) {
    Slot& slot = pair.slot[s];
    const bool measured = slot.present && lossless;
    if (slot.present || slot.queue_samples > 0) {
      out.paths.push_back({.slot = s,
                           .usable = !slot.dead,
                           .dead = slot.dead,
                           .peer_dead = slot.peer_dead,
                           .queue_samples = slot.queue_samples,
                           .queue_ns = slot.queue_samples > 0 ? slot.queue_sum / slot.queue_samples : 0,
                           .base_ns = slot.base_ns,
                           .ecn_samples = slot.ecn_samples,
                           .marked = slot.marked,
                           .largest_arrives = slot.largest_arrives,
                           .last_link = slot.last_link,
                           .sent = measured ? sent : 0,
                           .answered = measured ? slot.answered : 0,
                           .peer_sent = slot.peer_sent,
                           .peer_heard = slot.peer_heard});
    } else if (slot.peer_sent > 0) {
      out.paths.push_back({.slot = s,
                           .usable = false,
                           .peer_dead = slot.peer_dead,
                           .peer_sent = slot.peer_sent,
                           .peer_heard = slot.peer_heard});
    }
    slot.present = true;  // until a look finds it missing
    slot.queue_sum = 0;
    slot.queue_samples = slot.ecn_samples = slot.marked = 0;
    slot.answered = slot.peer_sent = slot.peer_heard = 0;
  }
  for (auto& [key, flow] : pair.flows) {
    if (flow.looks > 0) flow.in_flight /= flow.looks;
    flow.awaited = awaited_.contains(key);
    out.flows.push_back(flow);
  }
  pair.flows.clear();
  return out;
}

std::vector<control::CauseVerdict> CauseBook::Judge(const NicPairs& nic, double seconds) {
  control::CauseWindow window{.seconds = seconds, .line_rate_bps = nic.line_rate_bps};
  for (const auto& [index, reverse_ns] : nic.pairs) {
    if (auto pair = pairs_.find(index); pair != pairs_.end())
      window.pairs.push_back(Take(pair->second, reverse_ns, nic.lossless));
  }
  auto [state, fresh] = nics_.try_emplace(nic.nic, rules_);
  std::vector<control::CauseVerdict> changed;
  for (control::CauseVerdict& verdict : state->second.Judge(window)) {
    const std::pair<PairKey, FlowKey> key{verdict.pair, verdict.flow};
    if (verdict.changed) changed.push_back(verdict);
    if (verdict.cause == Cause::kNone) {
      verdicts_.erase(key);
    } else {
      verdicts_[key] = std::move(verdict);
    }
  }
  return changed;
}

bool CauseBook::WorthTelling(const control::CauseVerdict& changed, int64_t now_ns) {
  Told& told = told_[{changed.pair, changed.flow}];
  const Cause cause = CauseToTell(changed);
  if (cause == Cause::kNone) return std::exchange(told.open, false);
  if (told.cause == cause && told.stopped == changed.stopped && now_ns - told.at_ns < kTellAgainNs) return false;
  told = {cause, now_ns, true, changed.stopped};
  return true;
}

void CauseBook::EndWindow() {
  absl::erase_if(totals_, [](const auto& entry) { return !entry.second.seen; });
  for (auto& [key, totals] : totals_) totals.seen = false;
  const auto of_gone_flow = [&](const auto& entry) {
    return entry.first.second != FlowKey{} && !totals_.contains(entry.first.second);
  };
  absl::erase_if(verdicts_, of_gone_flow);
  absl::erase_if(told_, of_gone_flow);
}

const control::CauseVerdict& CauseBook::Of(const PairKey& pair, const FlowKey& flow) const {
  static const control::CauseVerdict kNothing;
  auto at = verdicts_.find({pair, flow});
  return at == verdicts_.end() ? kNothing : at->second;
}

void CauseBook::Hold(control::Observation& seen) const {
  if (verdicts_.empty()) return;
  for (control::PairObservation& pair : seen.pairs) {
    for (control::FlowObservation& flow : pair.flows) {
      if (!Steers(Of(pair.pair, flow.key).cause)) flow.locked = true;
    }
  }
}

}  // namespace cw::agent
