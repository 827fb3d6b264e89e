// SPDX-License-Identifier: Apache-2.0
//
// A few hosts that run Agreement with old claims and noisy links, for tests: every host has its own clock (a second
// off, up to 100 ppm fast), rounds are not in step, claims are 100 to 500 ms old.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "sync/agreement.h"

namespace cw::sync {

struct SwarmSpec {
  int hosts = 20;
  double offset_ns = 1e9;   // of clocks, ±
  double drift_ppm = 100;   // ±
  double noise_ns = 25;     // standard deviation of a link's error
  double asymmetry_ns = 0;  // ±, constant, per link
  double error_est_ns = 60;
  double bound_ns = 5000;
  uint64_t seed = 1;
};

class Swarm {
 public:
  struct Host {
    std::string name;
    double offset_ns = 0, drift_ppb = 0;
    double drift_since_s = 0, drifted_ns = 0;
    double stepped_s = -1e9, step_ns = 0;  // the last step
    uint32_t steps = 0;
    double started_s = 0;
    bool up = true;
    std::unique_ptr<Agreement> agreement;
    double next_s = 0;
    std::deque<std::pair<double, FleetClaim>> said;
    std::vector<size_t> peers;
    AnchorReading (*anchor)(double true_s, int64_t local_ns) = nullptr;
  };

  explicit Swarm(const SwarmSpec& spec);

  // Runs on; `each` is called after every round of a host.
  void Run(double seconds, const std::function<void(size_t host)>& each = {});
  double now_s() const { return now_s_; }

  double LocalError(size_t i) const;  // local clock − true time
  int64_t Local(size_t i) const;
  double Fleet(size_t i) const;  // fleet time − true time, ns, less a constant
  const FleetTime& Time(size_t i) const { return hosts[i].agreement->now(); }
  double Spread(const std::function<bool(size_t)>& of = {}) const;  // largest minus smallest fleet time
  bool All(SyncState state) const;
  Reason Verdict(size_t of, size_t about) const;

  void Step(size_t i, double ns);
  void SetDrift(size_t i, double ppm);
  void Restart(size_t i);
  void Stop(size_t i) { hosts[i].up = false; }

  std::vector<Host> hosts;
  std::function<bool(size_t, size_t)> cut;                                        // the two cannot hear each other
  std::function<void(size_t from, size_t to, double true_s, FleetClaim&)> twist;  // what a liar says

 private:
  struct Noise {
    double value = 0, slope = 0, asymmetry = 0, at_s = 0;
  };
  void Round(size_t i);
  Estimate Link(size_t i, size_t j);
  Noise& NoiseOf(size_t i, size_t j);

  SwarmSpec spec_;
  std::mt19937_64 random_;
  double now_s_ = 100;
  std::vector<Noise> noise_;
  std::vector<NeighbourView> views_;
};

}  // namespace cw::sync
