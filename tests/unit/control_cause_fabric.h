// SPDX-License-Identifier: Apache-2.0
//
// The simulated fabric: packets, senders, receivers, links and probes, and the rule of causes that watches them. Time
// in seconds from 0; what is to be injected is at kInjectS. One thread.
#pragma once

#include <cstdint>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/control_cause_setup.h"
#include "tests/unit/control_dcqcn.h"
#include "userspace/control/causes.h"

namespace cw::control::cause_sim {

constexpr double kInjectS = 0.5, kWindowS = 1.0;

struct Packet {
  int flow = 0;
  int64_t psn = 0;
  int slot = 0;
  int hop = 0;
  bool ce = false, ask = false;
};

enum class Kind : uint8_t { kSend, kHop, kAck, kNak, kRnr, kCnp, kTick };

struct Event {
  double t;
  Kind kind;
  Packet p;
  bool operator<(const Event& o) const { return t > o.t; }
};

struct LiveFlow {
  FlowSpec spec;
  DcqcnSender sender;
  bool scheduled = false;
  double blocked_until = 0, progress_s = 0, credit_s = 0, last_cnp_s = -1;
  double demand = 1;
  int burst = 1;
  double credit = 0;  // packets that the application has brought
  int64_t next = 0, max_sent = 0, una = 0;
  int64_t expected = 0, nak_for = -1, unacked = 0;
  double ready_at = 0;                         // the receiver's next buffer
  int64_t good = 0;                            // delivered in the measured time
  int64_t arriving = 0;                        // the PSN behind the highest that arrived
  int64_t sent = 0, arrived = 0, missing = 0;  // packets in all; missing: as far as it was told
  uint64_t lost = 0;
  // of this window
  uint64_t packets = 0, gaps = 0, cnps = 0, rnr = 0, naks = 0, acks = 0;
  double in_flight = 0;
  int looks = 0;
  bool moved = false;
};

struct Series {  // of one slot of one pair in this window
  std::vector<double> queue_ns;
  int marked = 0;
  uint32_t sent = 0, answered = 0, peer_sent = 0, peer_heard = 0;
};

class Fabric {
 public:
  Fabric(const Setup& setup, bool inject, uint64_t seed, const CauseRules& rules);
  void Run(double seconds);
  double VictimBps() const { return static_cast<double>(flows_[0].good) * kPacketBits / measured_s_; }
  uint64_t Lost() const { return flows_[0].lost + probes_lost_; }
  const CauseVerdict& Verdict() const { return verdict_; }
  const std::string& RawText() const { return raw_text_; }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }
  int Up(int leaf, int spine) const { return leaf * setup_.spines + spine; }
  int Down(int spine, int leaf) const { return (kLeaves + leaf) * setup_.spines + spine; }
  int ToHost(int host) const { return 2 * kLeaves * setup_.spines + host; }
  std::vector<int> Path(int src, int dst, int slot) const {
    return {Up(src / kHostsPerLeaf, slot), Down(slot, dst / kHostsPerLeaf), ToHost(dst)};
  }
  double WaitOn(const std::vector<int>& path, double t) const;
  bool MarkedOn(const std::vector<int>& path, double t);
  bool LostOn(const std::vector<int>& path);
  void Inject(double t);
  void Push(double t, Kind kind, const Packet& p) { events_.push({t, kind, p}); }
  void Wake(int f, double t);
  void OnSend(int f, double t);
  void OnHop(Packet p, double t);
  void OnArrival(const Packet& p, double t);
  void Answer(Kind kind, const Packet& p, double t);
  void OnAnswer(const Event& e);
  double Brought(LiveFlow& flow, double t);
  void Look(double t);
  void Probe(double t);
  void ProbePair(int dst, double t);
  void Timeouts(double t);
  void EndWindow(double t);
  PairKey Key(int dst) const { return {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000100 + dst)}; }

  const Setup setup_;
  bool inject_, injected_ = false;
  std::mt19937_64 random_;
  std::vector<MarkingLink> links_;
  std::vector<double> loss_;  // per link
  std::vector<double> late_;  // share
  std::vector<LiveFlow> flows_;
  std::vector<double> nic_free_, host_free_;
  std::priority_queue<Event> events_;
  std::vector<std::vector<Series>> series_;  // per receiver and slot
  std::vector<int> round_;                   // per receiver
  double next_stall_s_ = 1e18;
  double window_from_s_ = 0, measured_s_ = 1;
  uint64_t probes_lost_ = 0;
  CauseState causes_, raw_;
  std::string raw_text_;  // what the rule found before damping, for people
  CauseVerdict verdict_;
};

}  // namespace cw::control::cause_sim
