// SPDX-License-Identifier: Apache-2.0
//
// What a simulation shows against the truth: errors between any two hosts, whether bound and error_est held, when the
// hosts agreed, whom an event disturbed, who was named. Liars, victims and hosts that something has just happened to
// are judged apart. One thread.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sync/sim/fleet.h"

namespace cw::sync::sim {

// By name, see Expect; a metric that does not apply is missing. Times in s, errors in ns, shares 0–1.
using Metrics = std::map<std::string, double>;

// One host at one time.
struct HostSample {
  bool up = false;
  bool synchronised = false;
  bool judged = false;  // up, honest, no victim, nothing has just happened to it
  uint32_t epoch = 0;
  uint64_t timeline = 0;
  double fleet_ns = 0;  // fleet time − true time
  double est_ns = 0, bound_ns = 0;
  bool tai_known = false;
  double tai_error_ns = 0, tai_bound_ns = 0;
  std::vector<double> nic_ns;  // its NICs' stamps as fleet time − true time
};

struct Moment {  // of all judged hosts
  TrueNs at;
  double worst_ns;  // p99 over the pairs of this time
  double synchronised;
  bool all_synchronised;
};

class Measure {
 public:
  explicit Measure(const Fleet& fleet);
  // Verdicts about neighbours are counted apart, because they are not needed at every sample.
  void Add(TrueNs t, const std::vector<HostSample>& samples);
  void AddVerdict(bool about_liar, bool named);
  void AddAnchorVerdict(bool named) { ++bad_anchor_verdicts_, bad_anchors_named_ += named; }
  Metrics Result();
  const std::vector<Moment>& moments() const { return moments_; }

 private:
  void AddPairs(TrueNs t, const std::vector<HostSample>& samples, const std::vector<uint32_t>& group);
  void AddBounds(const std::vector<HostSample>& samples, bool settled);
  void AddUntold(TrueNs t, const std::vector<HostSample>& samples);
  void AddVictims(const std::vector<HostSample>& samples, double middle_ns);
  void AddTai(const std::vector<HostSample>& samples, bool settled);
  void AddDisturbed(TrueNs t, const std::vector<HostSample>& samples, double middle_ns);
  void AddJumps(const std::vector<HostSample>& samples);
  double AgreedAfter(TrueNs from, double limit_ns) const;
  void Convergence(Metrics& m, double steady_ns) const;

  const Fleet& fleet_;
  Random random_;
  TrueNs settle_, last_quarter_;
  std::vector<float> errors_, ests_, bounds_, tai_errors_, tai_bounds_, nic_errors_, region_errors_, now_, est_used_;
  std::vector<Moment> moments_;
  std::vector<HostSample> last_, before_last_;
  std::vector<double> deviation_ns_;  // usual distance from the middle, per host
  std::vector<uint8_t> disturbed_;    // bits: state, epoch, place
  std::vector<uint32_t> epoch_before_;
  size_t happening_ = 0;  // the next
  TrueNs untold_ = 0, untold_at_ = -1;
  double max_ns_ = 0, jump_ns_ = 0, victim_ns_ = 0, over_bound_ns_ = 0;
  std::set<size_t> bound_hosts_;  // whose bound could be judged
  uint64_t judged_ = 0, synchronised_ = 0, bound_n_ = 0, bound_held_ = 0, disjoint_ = 0, pair_n_ = 0, pair_held_ = 0;
  uint64_t victims_ = 0, refused_ = 0, tai_n_ = 0, tai_told_ = 0, tai_known_ = 0, tai_held_ = 0;
  double over_tai_ns_ = -HUGE_VAL;
  uint64_t liar_verdicts_ = 0, liars_named_ = 0, honest_verdicts_ = 0, accused_ = 0;
  uint64_t bad_anchor_verdicts_ = 0, bad_anchors_named_ = 0;
};

}  // namespace cw::sync::sim
