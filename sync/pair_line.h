// SPDX-License-Identifier: Apache-2.0
//
// The straight line between two clocks, drawn midway between the low envelopes of both directions, with what is needed
// to judge it: how far its points scatter, and whether newer points contradict it. Part of PairEstimator.
// Pure; plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sync/envelope.h"

namespace cw::sync {

enum CloudIndex { kLocal, kRemote, kReply, kClouds };

// One direction's low points, oldest first. sign: of the offset in rx − tx.
struct Cloud {
  int sign = 1;
  std::vector<Envelope::Low> lows;
};
using Clouds = std::array<Cloud, kClouds>;

// A trip: half the difference of its two ways, as an offset of the peer's clock, at our time x.
struct Midpoint {
  int64_t x_ns = 0;
  int64_t offset_ns = 0;
  int64_t rtt_ns = 0;
};

struct LineData {
  Clouds clouds;
  std::vector<Midpoint> ours, theirs;  // trips that we began, that the peer began
};

// offset(x) = origin_y + level + slope·(x − origin_x), level as back and reply shift have it.
struct PairLine {
  bool valid = false;
  bool bent = false;      // begins on the line before, where a clock's rate changed
  bool by_reply = false;  // only replies show the way back, and their stamps' shift is not known
  int64_t since_ns = 0;   // points before this were not used
  int64_t origin_x_ns = 0;
  int64_t origin_y_ns = 0;
  double slope = 0;
  double middle_ns = 0;            // offset − origin_y at origin_x
  double level_ns[kClouds] = {};   // of each cloud's own line
  double spread_ns[kClouds] = {};  // from a tenth to three tenths of its points
  double uneven_ns = 0;            // quarters of the window lie off the line by this, root mean square
  double rtt_ns = 0;               // of the fastest: the two levels' sum
  double trip_rtt_ns = 0;          // … of whole trips, whatever the line; 0: too few
  double slowest_rtt_ns = 0;       // of the two series of trips, the one that took longer
  double used_rtt_ns = 0;          // of whole trips, as they weigh in the line; 0: none
  bool both_ways = false;          // trips that we began and such that the peer began: shifts of their stamps cancel
  bool shift_seen = false;
  double shift_ns = 0;  // of the peer's probes against replies, while both were there
  double shift_sd_ns = 0;
  double spread_both_ns = 0;  // of the two directions that the line rests on, the mean
  double points = 0;          // of the direction with fewer
  // Of a mature line, from how its midpoints lie: standard deviation of the middle at middle_x, and of the slope.
  double middle_sd_ns = 0, slope_sd = 0, middle_x_ns = 0;
  // How far a parabola through the midpoints would leave the line at its end, and the standard deviation of that: a
  // clock whose rate wanders needs a shorter window.
  double bend_ns = 0, bend_sd_ns = 0;
  // As far as that is no chance the line was moved to the parabola's tangent at its end: the share, and by how much.
  double bend_share = 0, tangent_slope = 0, tangent_end_ns = 0, tangent_x_ns = 0;
  double first_ns = 0;  // x of the oldest point − origin_x
  double last_ns = 0;

  double span_ns() const { return last_ns - first_ns; }
  int64_t OffsetAt(int64_t x_ns) const;
  // Standard deviation of the line at x from how its points scatter: of the middle at the points' middle, more at the
  // ends and beyond. spread: at least so much.
  double ScatterAt(int64_t x_ns, double least_spread_ns) const;
  // Standard deviation of the slope, ns per ns.
  double SlopeSd(double least_spread_ns) const;
  // Of a low point above its cloud's line.
  double HeightNs(const Cloud& cloud, CloudIndex index, const Envelope::Low& low) const;

 private:
  double LevelSd(double least_spread_ns) const;
};

struct LineInputs {
  double most_slope = 0;
  double last_slope = 0;  // kept while a short window shows nothing else
  bool remote_fresh = false;
  bool shift_known = false;   // of replies' stamps against probes'
  double reply_shift_ns = 0;  // level of remote − level of reply
  // A short window may hold no fast point of one direction. If the fastest round trip is known (half of it; 0: not
  // known), the offset is then what changes the last line least.
  double floor_ns = 0;
  double noise_ns = 0;  // of single trips, beyond what stamps scatter by: deviations are then not independent
  const PairLine* last = nullptr;
  // The line that ended, if a clock's rate seems to have changed between these times: the new line begins on it.
  const PairLine* ended = nullptr;
  int64_t ended_from_ns = 0, ended_to_ns = 0;
};

// Not valid: too few points.
PairLine FitPairLine(const LineData& data, const LineInputs& in);

// Neighbouring lows merged until at most `most` are left: the lowest of each group by the slope.
void Thin(Cloud& cloud, double slope, size_t most);

}  // namespace cw::sync
