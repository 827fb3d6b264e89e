// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_pair.h"

#include <algorithm>
#include <map>

#include "tests/unit/bpf_judge.h"
#include "userspace/agent/views/path_seen.h"
#include "userspace/probe/hops.h"

namespace cw::sim {
namespace {

constexpr uint32_t kMissLimit = 3, kReviveLimit = 8;  // probe.*, as by default
constexpr uint64_t kPeerAheadNs = 3'600'000'000'000, kOneWayNs = 20'000, kPerPacketNs = 5'000;
constexpr int64_t kBaseNs = 5'000;
constexpr int64_t kSettlesNs = 4 * kSecondNs;
constexpr int kWakeRounds = 16, kSampleEvery = 5;
constexpr double kBackgroundLoss = 1e-5, kQueueSpike = 0.01;
constexpr uint32_t kMostRounds = 100;  // within an interval of reports

cwfabric::v1::PathState StateOf(uint32_t state) {
  switch (state) {
    case CW_SLOT_UP:
      return cwfabric::v1::PATH_STATE_UP;
    case CW_SLOT_SUSPECT:
      return cwfabric::v1::PATH_STATE_SUSPECT;
    case CW_SLOT_DEAD:
      return cwfabric::v1::PATH_STATE_DEAD;
    default:
      return cwfabric::v1::PATH_STATE_NEW;
  }
}

}  // namespace

ProbePair::ProbePair(FleetFabric& fabric, Random& random, std::vector<FleetFabric::Way> ways, uplink::PathSeen names)
    : fabric_(fabric), random_(random), ways_(std::move(ways)), names_(std::move(names)), slots_(ways_.size()) {
  for (size_t s = 0; s < slots_.size(); ++s) slots_[s].port = static_cast<uint16_t>(49152 + s);
}

void ProbePair::Boot(int64_t now_ns) {
  pair_ = {};
  tx_ = {};
  pair_.interval_ns = static_cast<uint32_t>(kIntervalNs);
  pair_.half_dead_rounds = 5 * kMissLimit;
  for (size_t s = 0; s < slots_.size(); ++s) {
    pair_.slot[s].port = slots_[s].port;
    pair_.slot[s].state = CW_SLOT_NEW;
  }
  changed_ns_ = last_ns_ = now_ns;
}

void ProbePair::StartAgent(int64_t now_ns, uint32_t session) {
  session_ = session;
  round_ = 0;
  fates_ = {};
  silence_ = {};
  pause_ = {};
  for (Slot& slot : slots_) {
    slot.forward = {};
    slot.reverse = {};
    slot.watch.reset();
    slot.counted_round = 0;
    slot.hops.clear();
    slot.end_proof = {};
  }
  Trace(true);
  retrace_ns_ = 0;
  changed_ns_ = last_ns_ = now_ns;
}

bool ProbePair::Crosses(int edge) const {
  return std::any_of(ways_.begin(), ways_.end(),
                     [&](const FleetFabric::Way& way) { return std::find(way.begin(), way.end(), edge) != way.end(); });
}

bool ProbePair::Look(int64_t now_ns, bool peer_answers) {
  bool changed = std::exchange(peer_answers_, peer_answers) != peer_answers;
  for (size_t s = 0; s < slots_.size(); ++s) {
    double pass = 1, queue_ns = 0;
    bool paused = false;
    for (const int e : ways_[s]) {
      const FleetFabric::Edge& edge = fabric_.edges[static_cast<size_t>(e)];
      pass *= 1 - edge.loss;
      queue_ns += edge.queue_ns;
      paused |= edge.paused;
    }
    Slot& slot = slots_[s];
    changed |= pass != slot.pass || paused != slot.paused;
    slot.pass = pass;
    slot.queue_ns = queue_ns;
    slot.paused = paused;
  }
  if (changed) changed_ns_ = peer_->changed_ns_ = now_ns;
  return changed;
}

void ProbePair::AddDelay(Slot& slot, int64_t now_ns) {
  const double spike = Chance(random_) < kQueueSpike ? 15'000 : 500 * Chance(random_);
  const double queue_ns = spike + slot.queue_ns * (0.7 + 0.6 * Chance(random_));
  slot.forward.AddProbe(now_ns, kBaseNs + static_cast<int64_t>(queue_ns));
}

void ProbePair::Round(int64_t now_ns) {
  const uint32_t round = ++round_, n = static_cast<uint32_t>(slots_.size());
  const auto sent_at = [&](uint32_t s) { return static_cast<uint64_t>(now_ns) + s * kPerPacketNs; };
  for (uint32_t s = 0; s < n; ++s) cw_rounds_leave(&pair_, &tx_, session_, round, s, sent_at(s), 0);
  std::vector<Back> backs;
  for (uint32_t s = 0; s < n && peer_answers_; ++s) {
    if (!Survives(slots_[s])) continue;
    if (cw_rounds_admit(&peer_->pair_, session_, round, s) == CW_REPLAYED) continue;
    Back back{.slot = s, .t2 = sent_at(s) + kOneWayNs + kPeerAheadNs, .bitmap = {}};
    for (uint32_t i = 0; i < CW_ROUNDS; ++i)
      back.bitmap[i] = static_cast<uint16_t>(cw_round_mask_of(&peer_->pair_.rcvd[(round - i) % CW_ROUNDS], round - i));
    if (Survives(peer_->slots_[(s + round) % peer_->slots_.size()])) backs.push_back(back);
  }
  for (const Back& back : backs) Take(back, round, now_ns);
  last_ns_ = now_ns;
}

void ProbePair::Take(const Back& back, uint32_t round, int64_t now_ns) {
  const test::SeenReply seen{.responder_session = peer_->session_,
                             .round = round,
                             .slot = back.slot,
                             .t2 = back.t2,
                             .now = back.t2 - kPeerAheadNs + kOneWayNs,
                             .arrived = back.bitmap};
  test::TakeReply(seen, kMissLimit, kReviveLimit, &pair_, &tx_, [&](uint32_t s, int from, int to) {
    if (to == CW_SLOT_DEAD)
      slots_[s].watch.emplace(now_ns, control::SilenceFound{.progress = pair_.slot[s].progress_round,
                                                            .round = round,
                                                            .limit = kMissLimit,
                                                            .silence_ns = kMissLimit * kIntervalNs});
    if (from == CW_SLOT_DEAD) slots_[s].watch.reset();
    News(now_ns);
  });
  uint16_t judged = 0;
  for (size_t s = 0; s < slots_.size(); ++s) judged |= static_cast<uint16_t>((pair_.slot[s].state != CW_SLOT_NEW) << s);
  fates_.Answered(round, static_cast<uint8_t>(back.slot), back.bitmap, judged,
                  [&](const control::ProbeFates::Round& settled) {
                    for (size_t s = 0; s < slots_.size(); ++s) {
                      const unsigned known = settled.judged & (settled.arrived | settled.lost);
                      if ((known >> s & 1) != 0)
                        slots_[s].forward.AddFates(now_ns, 1, settled.judged & settled.lost & (1u << s) ? 1 : 0);
                    }
                  });
  if (round % kSampleEvery == 0) AddDelay(slots_[back.slot], now_ns);
}

// Where flows' packets are held up another class passes: it asks over the path, and any path brings the answer.
bool ProbePair::AskClasses(int64_t now_ns) {
  bool news = false;
  const bool back = std::any_of(peer_->slots_.begin(), peer_->slots_.end(), [](const Slot& s) { return s.pass > 0; });
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (!slot.watch) continue;
    if (slot.watch->Ask(now_ns, round_, ++token_) && peer_answers_ && back && Chance(random_) < slot.pass)
      slot.watch->Answered(now_ns, token_);
    news |= slot.watch->Step(now_ns, pair_.slot[s].progress_round, round_);
  }
  uint32_t progress = pair_.slot[0].progress_round;
  for (size_t s = 1; s < slots_.size(); ++s) progress = cw_round_max(progress, pair_.slot[s].progress_round);
  news |= pause_.Step(now_ns, silence_.AllSilent(), progress, round_);
  if (pause_.Ask(now_ns, round_, ++token_) && peer_answers_ && back &&
      Chance(random_) < slots_[token_ % slots_.size()].pass)
    pause_.Answered(now_ns, token_);
  return news;
}

// As ProbeNews::CountSent: nobody settles a dead path's rounds.
void ProbePair::CountLost(int64_t now_ns) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    const uint32_t sent = round_ - std::exchange(slots_[s].counted_round, round_);
    if (sent <= kMostRounds && pair_.slot[s].state == CW_SLOT_DEAD && !silence_.AllSilent())
      slots_[s].forward.AddFates(now_ns, sent, sent);
  }
}

bool ProbePair::StepSilence(int64_t now_ns) {
  control::PathSilence::Look look{.round = pair_.cur_round, .interval_ns = kIntervalNs};
  for (size_t s = 0; s < slots_.size(); ++s) {
    look.probed |= static_cast<uint16_t>(1u << s);
    look.arrived[s] = pair_.slot[s].progress_round;
  }
  look.peer_probes = pair_.peer_session != 0;
  look.peer_round = pair_.peer_round;
  return silence_.Step(now_ns, look);
}

void ProbePair::News(int64_t now_ns) {
  news_ = true;
  changed_ns_ = now_ns;
  if (retrace_ns_ == 0) retrace_ns_ = now_ns + 2 * kSecondNs + static_cast<int64_t>(Chance(random_) * 3 * kSecondNs);
}

bool ProbePair::AnyReply() const {
  return peer_answers_ &&
         std::any_of(peer_->slots_.begin(), peer_->slots_.end(), [](const Slot& s) { return s.Arrives(); });
}

// All that is certain has happened: what follows is only more of it.
bool ProbePair::Settled(int64_t now_ns) const {
  const auto sure = [](const Slot& s) { return s.IsSure(); };
  return now_ns - changed_ns_ > kSettlesNs && std::all_of(slots_.begin(), slots_.end(), sure) &&
         std::all_of(peer_->slots_.begin(), peer_->slots_.end(), sure);
}

bool ProbePair::IsCalm(int64_t now_ns) const {
  if (!Settled(now_ns) || !peer_answers_ || retrace_ns_ != 0) return false;
  const auto arrives = [](const Slot& s) { return s.Arrives(); };
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (pair_.slot[s].state != CW_SLOT_UP || silence_.SilentNs(static_cast<uint8_t>(s)) > 0) return false;
  }
  return std::all_of(slots_.begin(), slots_.end(), arrives) &&
         std::all_of(peer_->slots_.begin(), peer_->slots_.end(), arrives);
}

void ProbePair::CountRounds(int64_t now_ns, uint32_t rounds) {
  round_ += rounds;
  pair_.cur_round = round_;
  fates_ = {};  // the peer did not note these rounds one by one: none of them was lost
  const bool reply = AnyReply();
  const uint32_t known = std::min(rounds, kMostRounds);
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (!slot.Arrives() || !peer_answers_) continue;
    peer_->pair_.peer_round = round_;
    if (!reply) continue;
    pair_.slot[s].progress_round = round_;
    if (pair_.slot[s].state == CW_SLOT_DEAD) continue;
    slot.forward.AddFates(now_ns, known, std::binomial_distribution<uint32_t>(known, kBackgroundLoss)(random_));
    for (int i = 0; i < 3; ++i) AddDelay(slot, now_ns);
  }
  last_ns_ = now_ns;
}

void ProbePair::CatchUp(int64_t now_ns) {
  const int64_t rounds = (now_ns - last_ns_) / kIntervalNs;
  if (rounds <= 0) return;
  CountRounds(now_ns, static_cast<uint32_t>(rounds));
  for (Slot& slot : slots_) slot.counted_round = round_;
}

void ProbePair::Begin(int64_t now_ns) {
  Round(now_ns);
  const bool up = std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.Arrives(); });
  if (up) changed_ns_ = now_ns - 2 * kSettlesNs;
  retrace_ns_ = 0;
  for (Slot& slot : slots_) slot.counted_round = round_;
}

// The rule wants to have seen the last rounds one by one.
void ProbePair::Wake(int64_t now_ns) {
  CatchUp(now_ns - kWakeRounds * kIntervalNs);
  const int64_t begin_ns = std::max(last_ns_ + kIntervalNs, now_ns - kWakeRounds * kIntervalNs);
  for (int64_t at = begin_ns; at < now_ns; at += kIntervalNs) Round(at);
  for (Slot& slot : slots_) slot.counted_round = round_;
}

bool ProbePair::Tick(int64_t now_ns) {
  const bool second = ++ticks_ % 10 == 0, settled = Settled(now_ns);
  news_ = false;
  if (!settled) Round(now_ns);
  if (settled && second) CountRounds(now_ns, static_cast<uint32_t>((now_ns - last_ns_) / kIntervalNs));
  if (settled && !second) return false;
  if (second) CountLost(now_ns);
  if (AskClasses(now_ns)) news_ = true;
  if (StepSilence(now_ns)) News(now_ns);
  return news_;
}

// Hops that end early keep the table; without one it is made of what there is (probe/discovery.h).
bool ProbePair::Trace(bool anew) {
  retrace_ns_ = 0;
  bool changed = false;
  std::map<uint16_t, probe::Hops> traced;
  for (size_t s = 0; s < slots_.size(); ++s) {
    std::vector<Addr> hops = probe::TrimSilence(fabric_.Trace(ways_[s]));
    anew = anew || probe::Conflict(slots_[s].hops, hops);
    changed |= hops != slots_[s].hops;
    slots_[s].hops = hops;
    traced[slots_[s].port] = std::move(hops);
  }
  if (!anew) return changed;
  table_.clear();
  for (const auto& [port, hops] : probe::CertainHops(traced)) table_.insert(hops);
  return true;
}

void ProbePair::AppendTo(std::vector<uplink::PathSeen>& out, int64_t now_ns, int seconds) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    uplink::PathSeen seen = names_;
    seen.udp_port = slot.port;
    seen.slot = static_cast<uint8_t>(s);
    const bool paused = slot.watch && slot.watch->verdict() == control::Silence::kPaused;
    agent::AppendSeen(std::move(seen),
                      {.silence = silence_,
                       .forward = slot.forward,
                       .reverse = slot.reverse,
                       .state = StateOf(pair_.slot[s].state),
                       .revives = pair_.slot[s].revive > 0,
                       .held_up = paused || (slot.watch && slot.watch->ClassStands(now_ns)),
                       .pair_stands = pause_.Stands(now_ns),
                       .hops = &slot.hops,
                       .silence_behind = table_.contains(slot.hops),
                       .end_proof = slot.end_proof},
                      now_ns, seconds, out);
  }
}

}  // namespace cw::sim
