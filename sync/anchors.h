// SPDX-License-Identifier: Apache-2.0
//
// TAI beside the agreement: what hosts with an anchor (a clock disciplined by PTP, NTP, GPS) say travels from host to
// host as "fleet + offset is TAI, ± bound". Where more than half of them overlap TAI is known, and lies from the first
// to the last point that at least half of them cover (K. Marzullo, S. Owicki, PODC 1983): true while no more than half
// are wrong. Without such a majority TAI is unknown, and who contradicts whom is told. An anchor that steps has no vote
// until it agrees again: its interval is widened to what it said before. Fleet time itself never moves for an anchor.
// Pure; one thread per object.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/agreement.h"

namespace cw::sync {

class Anchors {
 public:
  // Once a round, first: the time that has passed since the last one, by our clock. Forgets what is too old.
  void Advance(int64_t now_ns);
  // Our own anchor; fleet_ns is our fleet time at reading.local_ns.
  void AddOwn(uint64_t self, const AnchorReading& reading, int64_t fleet_ns);
  // From a neighbour: record as told age_ns ago; apart_ns: its fleet time − ours; link_bound_ns: how wrong that may be.
  void Add(uint64_t self, const AnchorRecord& record, int64_t age_ns, double apart_ns, double link_bound_ns);
  // Our fleet time was stepped by this much: all offsets shrink by it.
  void Stepped(int64_t ns);
  // The slope of our fleet time over our clock, from now on. TAI is as steady as clocks are, while a fleet that comes
  // together is not: what is known of TAI's rate goes with the clock.
  void SlopeIs(double ppb);
  void Judge();  // once a round, last

  AnchorRecord Next();  // the record to tell in the next claim; another one each time
  bool known() const { return known_; }
  int64_t offset_ns() const { return offset_ns_; }  // of the majority, smoothed
  double slope_ppb() const { return slope_ppb_; }
  int64_t bound_ns() const { return bound_ns_; }
  uint32_t hops() const { return hops_; }
  const std::vector<AnchorVerdict>& verdicts() const { return verdicts_; }
  Reason VerdictOf(uint64_t anchor_id) const;

 private:
  // Offsets are kept as whole ns and a remainder: TAI − fleet may be 10^18.
  struct Known {
    AnchorRecord record;  // brought forward to the present
    double remainder_ns = 0;
    int64_t doubt_ns = 0;                                 // it stepped by about so much; 0: it has a vote
    int64_t doubted_ns = 0, agrees_since_ns = INT64_MAX;  // when; since when it agrees with those that vote
  };
  Known* Find(uint64_t anchor_id);
  bool Young(const Known& known) const;
  void Replace(Known& known, const AnchorRecord& record);
  void Doubt(Known& known, int64_t ns);
  void Restore(Known& known, bool agrees);
  void Move(double ns);
  static bool LeavesAsSmears(const AnchorRecord& a, const AnchorRecord& b);
  void Follow(int64_t centre_ns, double low_ns, double high_ns, double drift_ppb);

  int64_t now_ns_ = INT64_MIN;
  double passed_s_ = 0, fleet_slope_ppb_ = 0;
  std::vector<Known> known_anchors_;
  struct {
    bool started = false;
    double fraction_ns = 0, drift_ppb = 0;
    int64_t last_ns = 0;
    int readings = 0;
  } own_;
  size_t next_ = 0;
  int64_t news_ns_ = 0, first_ns_ = 0;  // when we last heard of another anchor, and when of the first
  bool known_ = false;
  int64_t offset_ns_ = 0;
  double remainder_ns_ = 0;
  double slope_ppb_ = 0;
  int64_t bound_ns_ = -1;
  uint32_t hops_ = 0;
  std::vector<AnchorVerdict> verdicts_;
};

}  // namespace cw::sync
