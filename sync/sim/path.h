// SPDX-License-Identifier: Apache-2.0
//
// How long a packet takes in one direction of one path: base, what stamps and the machine add, and queues that come and
// go with the load. The figures of the default are those of kernel stamps on veth: a minimum over 1 s windows wanders
// by some 100 ns. One thread per object.
#pragma once

#include <memory>
#include <vector>

#include "sync/sim/clock.h"
#include "sync/sim/random.h"

namespace cw::sync::sim {

// A queue with Poisson or bursty arrivals. Its wait is remembered for its relaxation time and drawn from the steady
// state of M/M/1 after that, so it costs the same however rarely it is asked.
struct QueueSpec {
  double load = 0;            // mean utilisation, 0–1
  double burst_ns = 100'000;  // mean work that arrives at once
  bool bursty = false;        // phases of near saturation
  double phase_s = 0.02;      // their mean length
};

class Queue {
 public:
  Queue(const QueueSpec& spec, Random random) : spec_(spec), random_(random) {}
  double WaitNs(TrueNs t);
  void set_load(double load) { spec_.load = load; }

 private:
  double PhaseLoad(TrueNs t);

  QueueSpec spec_;
  Random random_;
  TrueNs at_ = 0;
  double wait_ns_ = 0;
  bool busy_ = false;
  TrueNs phase_until_ = 0;
};

struct PathSpec {
  double base_ns = 5000;
  double noise_ns = 100;        // of the stamps: |normal|
  double tail_ns = 200;         // exponential
  double floor_wander_ns = 60;  // the fastest packets wander too: caches, power states, placement
  double floor_tau_s = 2;
  double busy_chance = 0.01;  // the machine was busy …
  double busy_ns = 50'000;    // … for so long
};

class Direction {
 public:
  Direction(const PathSpec& spec, std::vector<std::shared_ptr<Queue>> queues, Random random);
  // extra_ns: changes that the scenario makes to the base.
  double DelayNs(TrueNs t, double extra_ns);
  // The fastest packet that this direction can carry now, so the truth about asymmetry.
  double base_ns() const { return spec_.base_ns; }

 private:
  PathSpec spec_;
  std::vector<std::shared_ptr<Queue>> queues_;
  Random random_;
  TrueNs at_ = 0;
  double wander_ns_ = 0;
};

}  // namespace cw::sync::sim
