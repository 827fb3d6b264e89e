// SPDX-License-Identifier: Apache-2.0
//
// What a packet meets on its way in the clock's tests: a clock of known error, a queue shared with other traffic, and
// stamps that are late by what the machine does. Figures: kernel stamps (tc egress to XDP) between network namespaces.
// Deterministic by seed; one thread per object.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cw::sync {

// A clock: an offset and a rate error that change at given true times, and a crystal's own wander.
struct SimClock {
  struct Change {
    double at_s;
    double step_ns;    // added at once
    double drift_ppm;  // from here on
  };
  std::vector<Change> changes;  // by time; none = true time

  SimClock() = default;
  explicit SimClock(std::vector<Change> c) : changes(std::move(c)) {}
  double wander_ppb = 0;        // the rate's random walk, per √s
  double swing_ppb = 0;         // temperature: amplitude of a sine …
  double swing_period_s = 300;  // … of this period
  uint64_t seed = 1;

  double ErrorNs(double true_s) const;
  int64_t At(double true_s) const;  // true time starts at 100 s, so that no clock is negative

 private:
  double WanderNs(double true_s) const;
  mutable std::vector<double> wandered_ns_;  // by 10 ms, grown as asked for
  mutable double wander_rate_ppb_ = 0;
  mutable std::mt19937_64 random_;
};

enum class Traffic {
  kPoisson,   // packets come independently
  kBursts,    // … in bursts of eight
  kReacting,  // senders go faster until the queue marks, then slow down; all of them pause now and then: standing
              // queues
};

// A FIFO link with other traffic on it.
class SimQueue {
 public:
  // load: mean utilisation; packet_ns: how long the link is busy with one packet.
  SimQueue(Traffic traffic, double load, double packet_ns, uint64_t seed);
  // What a packet waits that comes at true_s. Times must not fall; where they do, the newest state answers.
  double WaitNs(double true_s);

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Exponential(double mean) { return std::exponential_distribution<double>(1 / mean)(random_); }
  void Arrive();
  void React(double now_ns);

  Traffic traffic_;
  double load_, packet_ns_;
  std::mt19937_64 random_;
  double now_ns_ = 0, wait_ns_ = 0, next_ns_ = 0;
  double rate_;          // offered load at present
  bool sending_ = true;  // kReacting
  double phase_ends_ns_ = 0, reacted_ns_ = 0;
};

struct StampNoise {
  double normal_ns = 100;         // half-normal, per packet
  double exponential_ns = 200;    // per packet
  double busy_share = 0.01;       // so many packets meet a busy machine …
  double busy_ns = 50e3;          // … for so long in the mean
  double first_ns = 600;          // the first probe of a burst
  double common_wander_ns = 100;  // of the fastest packet over seconds, both directions alike
  double wander_ns = 15;          // … each direction and path for itself
  double wander_tau_s = 2;
  double shift_ns = 0;       // a direction is now and then faster by this …
  double shift_every_s = 5;  // … for as long as it was not
  double early_share = 0;    // stamps taken late at the sender: packets seem faster …
  double early_ns = 0;       // … by so much in the mean
  double batch_share = 0;    // receivers that poll in batches: so much of the time …
  double batch_ns = 60e3;    // … packets are stamped at the end of a pause of this length
};

// The stamps of one path in one direction.
class SimStamps {
 public:
  SimStamps(const StampNoise& noise, double base_ns, uint64_t seed, uint64_t common_seed);
  // Delay apart from queues of a packet that is sent at true_s.
  double DelayNs(double true_s, bool first_of_burst);

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double Exponential(double mean) { return std::exponential_distribution<double>(1 / mean)(random_); }
  void Wander(double true_s);

  StampNoise noise_;
  double base_ns_;
  std::mt19937_64 random_, common_random_;
  double wandered_until_s_ = 0, wander_ns_ = 0, common_ns_ = 0;
  bool shifted_ = false;
  double pause_from_ns_ = 0, pause_to_ns_ = 0;
};

}  // namespace cw::sync
