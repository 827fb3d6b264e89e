// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/nic_failover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::control {
namespace {

constexpr int kIntervals = 6;                    // of probes that a pair may miss
constexpr int64_t kReportAgeNs = 2'000'000'000;  // older ones say nothing any more
constexpr int64_t kToldAfterEndNs = 2'000'000'000;
// The largest RoCE MTU and the headers that the kernel takes off for it (host/nic_checks.h): all packets are below.
constexpr uint32_t kLargestRoce = 4096 + 96;

PairKey Mirrored(const PairKey& key) { return {.local = key.remote, .remote = key.local}; }

// The carrier that shares most with the pair: the peer's same NIC, else our same NIC, else neither.
int Distance(const PairKey& pair, const PairKey& carrier) {
  if (pair.remote == carrier.remote) return 0;
  return pair.local == carrier.local ? 1 : 2;
}

}  // namespace

bool FitsCarrier(uint32_t pair_mtu, uint32_t carrier_mtu) {
  return carrier_mtu == 0 || carrier_mtu >= std::min(pair_mtu == 0 ? kLargestRoce : pair_mtu, kLargestRoce);
}

int64_t NicFailover::LimitNs(const NicPair& pair) const {
  const auto found = states_.find(pair.key);
  const int64_t before_ns = found == states_.end() ? 0 : found->second.interval_ns;
  return std::max(rules_.silence_ns, kIntervals * std::max(pair.interval_ns, before_ns));
}

bool NicFailover::Usable(const NicPair& pair, int64_t now_ns) const {
  return pair.link_up && pair.last_reply_ns != 0 && now_ns - pair.last_reply_ns < LimitNs(pair) && !Silent(pair.key);
}

bool NicFailover::Silent(const PairKey& pair) const {
  const auto found = states_.find(pair);
  return found != states_.end() && found->second.silent;
}

bool NicFailover::MissedByPeer(const PairKey& pair, int64_t now_ns) const {
  const auto found = states_.find(pair);
  return found != states_.end() && found->second.peer.silent && found->second.peer_ns != 0 &&
         now_ns - found->second.peer_ns < kReportAgeNs;
}

bool NicFailover::Carried(const PairKey& pair) const {
  const auto found = states_.find(pair);
  return found != states_.end() && found->second.rule.tag != 0 && found->second.rule.send;
}

void NicFailover::OnReport(const std::string& peer, const NicReport& report, int64_t now_ns) {
  (void)peer;
  const auto found = states_.find(Mirrored(report.pair));
  if (found == states_.end() || report.tag > kNicTags) return;
  State& state = found->second;
  state.peer = report;
  state.peer.pair = Mirrored(report.pair);
  state.peer.carrier = Mirrored(report.carrier);
  state.peer_ns = state.vouched_ns = now_ns;
  state.doubted_ns = 0;
  // An agent that has nothing to carry is quiet; but the peer must not go by a rule that is none here.
  const bool known = report.tag == state.rule.tag && state.peer.carrier == state.rule.carrier;
  if (report.tag != 0 && !known) state.told_until_ns = now_ns + kToldAfterEndNs;
}

void NicFailover::Adopt(const PairKey& pair, const NicCarry& carry) {
  State& state = states_[pair];
  state.silent = true;
  state.rule = carry;
  state.peer = {.pair = pair, .carrier = carry.carrier, .tag = carry.tag, .silent = true, .restores = carry.send};
}

// All that could carry it, and there are some.
bool NicFailover::OthersAreTooSmall(const NicPair& pair, absl::Span<const NicPair> pairs) {
  bool any = false;
  for (const NicPair& other : pairs) {
    if (other.peer != pair.peer || other.key.local == pair.key.local || !other.can_carry) continue;
    if (FitsCarrier(pair.mtu, other.mtu)) return false;
    any = true;
  }
  return any;
}

// An MTU may change while a NIC carries.
bool NicFailover::CarrierFits(const NicPair& pair, const PairKey& carrier, absl::Span<const NicPair> pairs) {
  return std::all_of(pairs.begin(), pairs.end(),
                     [&](const NicPair& other) { return other.key != carrier || FitsCarrier(pair.mtu, other.mtu); });
}

// Is the pair silent, and did that change?
void NicFailover::Judge(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns,
                        NicStep& step) {
  const bool fresh = pair.last_reply_ns != 0 && now_ns - pair.last_reply_ns < LimitNs(pair);
  if (!fresh || !pair.link_up) state.answering_since_ns = 0;
  if (fresh && pair.link_up && state.answering_since_ns == 0) state.answering_since_ns = pair.last_reply_ns;
  if (!state.silent) {
    bool witness = false;
    for (const NicPair& other : pairs) {
      if (other.peer != pair.peer || other.key == pair.key || !Usable(other, now_ns)) continue;
      witness |= other.last_reply_ns - pair.last_reply_ns >= LimitNs(pair) / 2;
    }
    const bool lost = pair.last_reply_ns != 0 && (!pair.link_up || (!fresh && witness));
    if (!lost) return;
    state.silent = true;
    state.losses_ns.push_back(now_ns);
    std::string text = pair.link_up ? "does not answer while another pair of NICs does" : "link is down";
    if (OthersAreTooSmall(pair, pairs))
      absl::StrAppend(&text, ", and no other NIC has an MTU that carries its packets");
    step.changes.push_back({pair.key, pair.peer, std::move(text), true});
    return;
  }
  while (!state.losses_ns.empty() && now_ns - state.losses_ns.front() > rules_.flap_window_ns) {
    state.losses_ns.pop_front();
  }
  const size_t flaps = std::clamp<size_t>(state.losses_ns.size(), 1, 16);
  const int64_t hold_ns = std::min(rules_.longest_hold_ns, rules_.hold_ns << (flaps - 1));
  if (state.answering_since_ns == 0 || now_ns - state.answering_since_ns < hold_ns) return;
  state.silent = false;
  step.changes.push_back({pair.key, pair.peer, absl::StrFormat("has answered for %.1f s", hold_ns / 1e9), false});
}

uint8_t NicFailover::FreeTag(const PairKey& carrier) const {
  for (uint8_t tag = 1; tag <= kNicTags; ++tag) {
    const bool taken = std::any_of(states_.begin(), states_.end(), [&](const auto& s) {
      const auto is = [&](const NicCarry& c) { return c.tag == tag && c.carrier == carrier; };
      return is(s.second.rule) || is(s.second.old);
    });
    if (!taken) return tag;
  }
  return 0;
}

void NicFailover::End(State& state, int64_t now_ns) {
  if (state.rule.tag == 0) return;
  state.old = state.rule;
  state.old.send = false;
  state.old_until_ns = now_ns + rules_.linger_ns;
  state.told_until_ns = now_ns + kToldAfterEndNs;
  state.doubted_ns = 0;
  state.rule = {};
}

// A new session may be an agent that took its rules over, or a host that rebooted and has none.
void NicFailover::DoubtNewSession(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns) {
  const NicPair* newest = nullptr;  // a pair that does not answer does not know of it
  for (const NicPair& other : pairs) {
    if (other.peer != pair.peer || other.session == 0 || other.last_reply_ns == 0) continue;
    if (newest == nullptr || other.last_reply_ns > newest->last_reply_ns) newest = &other;
  }
  if (newest != nullptr && newest->session != state.session) {
    if (state.session != 0 && state.rule.tag != 0) state.doubted_ns = now_ns;
    state.session = newest->session;
  }
  if (state.doubted_ns == 0 || now_ns - state.doubted_ns < rules_.confirm_ns) return;
  state.peer = {};  // it was another one's word
  state.peer_ns = 0;
  End(state, now_ns);
}

// Does the peer still put back what leaves by the rule, as far as can be told?
bool NicFailover::Stands(const State& state, absl::Span<const NicPair> pairs, int64_t now_ns) const {
  if (now_ns - state.vouched_ns < rules_.unheard_ns) return true;
  if (!state.silent) return false;  // then the pair itself is the safer way
  return std::any_of(pairs.begin(), pairs.end(), [&](const NicPair& other) {
    return other.key == state.rule.carrier && other.last_reply_ns != 0 &&
           now_ns - other.last_reply_ns < rules_.unheard_ns;
  });
}

// The side that chooses: one carrier while either side misses the pair and the carrier answers.
void NicFailover::Lead(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns) {
  if (!state.silent && !pair.drained && !MissedByPeer(pair.key, now_ns)) return End(state, now_ns);
  if (state.rule.tag != 0 && !CarrierFits(pair, state.rule.carrier, pairs)) End(state, now_ns);
  const NicPair *best = nullptr, *present = nullptr;
  // A failure outranks a drain: what is to be free carries only what nothing else can.
  const auto shunned = [&](const NicPair& other) { return other.drained || MissedByPeer(other.key, now_ns); };
  const auto rank = [&](const NicPair& other) { return std::pair(shunned(other), Distance(pair.key, other.key)); };
  for (const NicPair& other : pairs) {
    if (other.peer != pair.peer || other.key == pair.key || !other.can_carry || !Usable(other, now_ns)) continue;
    if (!FitsCarrier(pair.mtu, other.mtu)) continue;
    if (shunned(other) && !state.silent) continue;
    if (other.key == state.rule.carrier && state.rule.tag != 0) present = &other;
    // What fell silent together with the pair, but was asked less often, does not show it yet.
    if (&other != present && state.silent && pair.link_up && other.last_reply_ns <= pair.last_reply_ns) continue;
    if (best == nullptr || rank(other) < rank(*best)) best = &other;
  }
  if (present != nullptr && shunned(*present) == shunned(*best)) return;  // goes on
  if (best == nullptr) {
    // A carrier that is silent for a moment is no worse than none, but a drained NIC that answers is better.
    if (Usable(pair, now_ns)) End(state, now_ns);
    return;
  }
  End(state, now_ns);
  if (const uint8_t tag = FreeTag(best->key); tag != 0) state.rule = {.carrier = best->key, .tag = tag};
}

void NicFailover::Follow(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns) {
  if (state.peer_ns == 0 || now_ns - state.peer_ns > kReportAgeNs) return;  // what was agreed goes on
  const NicCarry wanted = {.carrier = state.peer.carrier, .tag = state.peer.tag};
  const bool can = std::any_of(pairs.begin(), pairs.end(), [&](const NicPair& other) {
    return other.key == wanted.carrier && other.can_carry && FitsCarrier(pair.mtu, other.mtu);
  });
  if (wanted.tag == state.rule.tag && wanted.carrier == state.rule.carrier && CarrierFits(pair, wanted.carrier, pairs))
    return;
  End(state, now_ns);
  if (wanted.tag == 0 || !can) return;
  const bool taken = std::any_of(states_.begin(), states_.end(), [&](const auto& s) {
    return &s.second != &state && s.second.rule.tag == wanted.tag && s.second.rule.carrier == wanted.carrier;
  });
  if (taken) return;
  state.rule = wanted;
  if (state.old.tag == wanted.tag && state.old.carrier == wanted.carrier) state.old = {};  // the leader kept to it
}

void NicFailover::Report(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, bool acts, int64_t now_ns,
                         NicStep& step) {
  NicReport report = {.pair = pair.key, .silent = state.silent || pair.drained};
  if (state.rule.tag != 0) {
    report.carrier = state.rule.carrier;
    report.tag = state.rule.tag;
    report.restores = acts;
  }
  const bool quiet = !report.silent && state.rule.tag == 0;
  if (!quiet) state.told_until_ns = now_ns + kToldAfterEndNs;
  if (now_ns > state.told_until_ns) return;
  if (report == state.sent && now_ns - state.sent_ns < rules_.report_ns) return;
  const NicPair* via = nullptr;
  for (const NicPair& other : pairs) {
    if (other.peer == pair.peer && Usable(other, now_ns) &&
        (via == nullptr || other.key == state.rule.carrier || other.last_reply_ns > via->last_reply_ns)) {
      via = &other;
      if (other.key == state.rule.carrier) break;
    }
  }
  if (via == nullptr) return;
  state.sent = report;
  state.sent_ns = now_ns;
  step.reports.push_back({via->index, report});
}

NicStep NicFailover::Tick(absl::Span<const NicPair> pairs, bool acts, int64_t now_ns) {
  NicStep step;
  for (const NicPair& pair : pairs) {
    State& state = states_[pair.key];
    if (state.seen_reply_ns != pair.last_reply_ns) {
      state.interval_ns = std::max(pair.interval_ns, state.interval_ns / 2);
    }
    state.seen_reply_ns = pair.last_reply_ns;
  }
  for (const NicPair& pair : pairs) Judge(pair, states_[pair.key], pairs, now_ns, step);
  for (const NicPair& pair : pairs) {
    State& state = states_[pair.key];
    if (state.old.tag != 0 && now_ns >= state.old_until_ns) state.old = {};
    if (state.vouched_ns == 0) state.vouched_ns = now_ns;
    DoubtNewSession(pair, state, pairs, now_ns);
    const bool may = acts && !pair.held;
    if (!may) {
      End(state, now_ns);
    } else if (host_ < pair.peer) {
      Lead(pair, state, pairs, now_ns);
    } else {
      Follow(pair, state, pairs, now_ns);
    }
    state.rule.send = state.rule.tag != 0 && state.peer.restores && state.peer.tag == state.rule.tag &&
                      state.peer.carrier == state.rule.carrier && Stands(state, pairs, now_ns);
    Report(pair, state, pairs, may, now_ns, step);
    if (state.rule.tag != 0) step.carries[state.rule] = pair.key;
    if (state.old.tag != 0) step.carries[state.old] = pair.key;
  }
  return step;
}

}  // namespace cw::control
