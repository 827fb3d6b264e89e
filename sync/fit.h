// SPDX-License-Identifier: Apache-2.0
//
// Straight lines under several clouds of points with one common slope: quantile regression (R. Koenker, G. Bassett,
// "Regression quantiles", Econometrica 46, 1978) at a low quantile, so that delayed points, however many and however
// late, only count as "above". The clouds are the two directions of a pair: one shows +offset + delay, the other
// −offset + delay. The two directions must weigh alike: what slows both by the same (the machine, its power states)
// then cannot tilt them. Pure; any thread.
#pragma once

#include <vector>

namespace cw::sync {

struct Series {
  int sign = 1;           // +1: z falls on level + slope·x; −1: on level − slope·x
  std::vector<double> x;  // ns from an origin near the data
  std::vector<double> z;  // ns
  double weight = 1;      // of the whole cloud, however many points it has; 0: it gets a level and has no say
};

struct ParallelFit {
  double slope = 0;           // ns per ns
  std::vector<double> level;  // per series: the quantile of z − sign·slope·x
  double cost = 0;            // mean loss per point, ns; of the clouds by their weights
};

// The share of points below the lines. A tenth is robust against a point or two that are too low, and needs only one
// sub-window in ten to hold a probe that met no queue.
inline constexpr double kLowQuantile = 0.1;

// Least mean quantile loss over slopes in [least_slope, most_slope]; equal bounds fix the slope.
ParallelFit FitParallel(const std::vector<Series>& series, double least_slope, double most_slope);

// The same with the levels known, 0: only the slope is left. For the first moments after a clock's rate changed: its
// reading did not jump. The slope stays near 0 unless points that are too low say otherwise. The quantile's loss per
// point comes with it.
ParallelFit FitSlopeOnly(const std::vector<Series>& series, double least_slope, double most_slope);

}  // namespace cw::sync
