// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/bpf_pair_sim.h"

namespace cw::test {

PairSim::PairSim(SimConfig config) : config_(std::move(config)), random_(config_.seed) {
  pair_.interval_ns = static_cast<uint32_t>(config_.interval);
  pair_.half_dead_rounds = 15;
  for (int s = 0; s < config_.slots; ++s) {
    pair_.slot[s].port = static_cast<uint16_t>(49152 + s);
    pair_.slot[s].state = CW_SLOT_NEW;
  }
  At(now_, [this] { SendRound(); });
}

void PairSim::RunUntil(uint64_t end) {
  while (!events_.empty() && events_.begin()->first <= end) {
    auto event = events_.extract(events_.begin());
    now_ = event.key();
    event.mapped()();
  }
  now_ = end;
}

std::vector<Verdict> PairSim::Deaths() const {
  std::vector<Verdict> deaths;
  for (const Verdict& v : verdicts_)
    if (v.to == CW_SLOT_DEAD) deaths.push_back(v);
  return deaths;
}

void PairSim::RestartPeer() {
  ++peer_session_;
  peer_ = {};
}

void PairSim::SendRound() {
  At(now_ + config_.interval, [this] { SendRound(); });
  if (config_.prober_runs && !config_.prober_runs(now_)) return;  // missed rounds are skipped, not sent late
  if (pair_.tx_session != session_) round_ = 0;
  ++round_;
  // A prober needs some microseconds per packet: the last slot leaves later than the first.
  for (int s = 0; s < config_.slots; ++s) At(now_ + s * 5 * kUs, [this, s] { SendProbe(s); });
}

void PairSim::SendProbe(int slot) {
  uint32_t session = session_, round = round_;
  cw_rounds_leave(&pair_, &tx_, session, round, slot, now_, 0);
  if (config_.data && config_.data(slot, now_)) SendData(slot);
  if (config_.forward && !config_.forward(slot, now_, random_)) return;
  At(now_ + Delay(slot, now_), [=, this] { Arrive(session, round, slot); });
}

// As bpf/steer.h marks and bpf/ingress.h resolves: the round at sending, proved one round trip later.
void PairSim::SendData(int slot) {
  uint32_t round = pair_.cur_round;
  if (config_.forward && !config_.forward(slot, now_, random_)) return;
  uint64_t back = now_ + Delay(slot, now_);
  back += Delay(slot, back);
  At(back, [=, this] {
    pair_.slot[slot].acked_round = cw_round_max(pair_.slot[slot].acked_round, round);
    pair_.slot[slot].acked_ns = now_;
  });
}

void PairSim::Arrive(uint32_t session, uint32_t round, int slot) {
  if (config_.peer_up && !config_.peer_up(now_)) return;
  if (cw_rounds_admit(&peer_, session, round, slot) == CW_REPLAYED) return;
  std::array<uint16_t, CW_ROUNDS> bitmap;
  for (uint32_t i = 0; i < CW_ROUNDS; ++i)
    bitmap[i] = static_cast<uint16_t>(cw_round_mask_of(&peer_.rcvd[(round - i) & 7], round - i));
  int back = (slot + static_cast<int>(round)) % config_.slots;
  if (config_.reverse && !config_.reverse(back, now_, random_)) return;
  uint64_t t2 = PeerClock(now_);
  uint32_t responder = peer_session_;
  At(now_ + Delay(back, now_), [=, this] { Reply(session, round, slot, t2, bitmap, responder); });
}

void PairSim::Reply(uint32_t session, uint32_t round, int slot, uint64_t t2, std::array<uint16_t, CW_ROUNDS> bitmap,
                    uint32_t responder) {
  if (session != session_) return;
  const SeenReply seen{.responder_session = responder,
                       .round = round,
                       .slot = static_cast<uint32_t>(slot),
                       .t2 = t2,
                       .now = now_,
                       .arrived = bitmap};
  TakeReply(seen, 3, 8, &pair_, &tx_, [this](uint32_t s, int from, int to) {
    verdicts_.push_back({now_, static_cast<int>(s), from, to, pair_.slot[s].misses});
  });
}

}  // namespace cw::test
