// SPDX-License-Identifier: Apache-2.0
// Two hosts, up to 16 paths between them and a prober, in simulated time: what the kernel does with probes, done by the
// same functions. For the tests of the rule of liveness. Times in nanoseconds; one thread.
#ifndef CW_TESTS_UNIT_BPF_PAIR_SIM_H
#define CW_TESTS_UNIT_BPF_PAIR_SIM_H

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/bpf_judge.h"

namespace cw::test {

constexpr uint64_t kUs = 1000, kMs = 1000 * kUs, kSecond = 1000 * kMs;

struct SimConfig {
  int slots = 4;
  uint64_t interval = kMs;
  int64_t peer_offset = 3'600'000'000'000;  // the peer's clock is an hour ahead
  double peer_drift = 50e-6;
  unsigned seed = 1;
  // One-way delay of a packet of a slot sent at t, without the fixed 20 us; drawn anew per packet.
  std::function<uint64_t(int slot, uint64_t t, std::mt19937& random)> queue;
  // Does a packet of a slot sent at t get through? forward: probes; reverse: replies that take the slot.
  std::function<bool(int slot, uint64_t t, std::mt19937& random)> forward;
  std::function<bool(int slot, uint64_t t, std::mt19937& random)> reverse;
  std::function<bool(uint64_t t)> peer_up;
  std::function<bool(uint64_t t)> prober_runs;
  // Is data sent on the slot at t and acknowledged one round trip later, as long as forward() lets it through?
  std::function<bool(int slot, uint64_t t)> data;
};

struct Verdict {
  uint64_t time;
  int slot;
  int from;
  int to;
  uint32_t misses;
};

class PairSim {
 public:
  explicit PairSim(SimConfig config);

  void RunUntil(uint64_t end);

  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  std::vector<Verdict> Deaths() const;
  cw_pair& pair() { return pair_; }
  uint64_t now() const { return now_; }
  void RestartAgent() { ++session_; }  // our agent: new session, rounds from 1
  void RestartPeer();                  // the peer's machine: its books are empty

 private:
  void SendRound();
  void SendProbe(int slot);
  void Arrive(uint32_t session, uint32_t round, int slot);
  void Reply(uint32_t session, uint32_t round, int slot, uint64_t t2, std::array<uint16_t, CW_ROUNDS> bitmap,
             uint32_t responder);
  void SendData(int slot);
  void At(uint64_t t, std::function<void()> what) { events_.emplace(t, std::move(what)); }
  uint64_t Delay(int slot, uint64_t t) { return 20 * kUs + (config_.queue ? config_.queue(slot, t, random_) : 0); }
  uint64_t PeerClock(uint64_t t) const {
    return t + config_.peer_offset + static_cast<int64_t>(static_cast<double>(t) * config_.peer_drift);
  }

  SimConfig config_;
  std::mt19937 random_;
  std::multimap<uint64_t, std::function<void()>> events_;
  uint64_t now_ = kSecond;
  uint32_t round_ = 0;
  uint32_t session_ = 1000;
  uint32_t peer_session_ = 2000;
  cw_pair pair_ = {};  // ours
  cw_pair peer_ = {};  // the peer's, for what it received
  cw_probe_tx tx_ = {};
  std::vector<Verdict> verdicts_;
};

}  // namespace cw::test

#endif
