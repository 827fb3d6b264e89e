// SPDX-License-Identifier: Apache-2.0
#include "sync/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace cw::sync {
namespace {

constexpr double kSlopeResolution = 1e-10;

double LowQuantile(std::vector<double>& residuals) {
  const auto k = static_cast<std::ptrdiff_t>(kLowQuantile * static_cast<double>(residuals.size() - 1));
  std::nth_element(residuals.begin(), residuals.begin() + k, residuals.end());
  return residuals[static_cast<size_t>(k)];
}

double Level(const Series& s, double slope, std::vector<double>& scratch) {
  scratch.resize(s.x.size());
  for (size_t i = 0; i < s.x.size(); ++i) scratch[i] = s.z[i] - s.sign * slope * s.x[i];
  return LowQuantile(scratch);
}

double Loss(double residual) { return residual > 0 ? kLowQuantile * residual : (kLowQuantile - 1) * residual; }

double PointWeight(const Series& s) { return s.weight / static_cast<double>(s.x.size()); }

// Minus the derivative of the loss by the slope. The loss is convex, so this falls as the slope grows.
double Pull(const std::vector<Series>& series, const std::vector<double>& mean_x, double slope,
            std::vector<double>& scratch) {
  double pull = 0;
  for (size_t c = 0; c < series.size(); ++c) {
    const Series& s = series[c];
    if (s.x.empty() || s.weight == 0) continue;
    const double level = Level(s, slope, scratch);
    double of_cloud = 0;
    for (size_t i = 0; i < s.x.size(); ++i) {
      const double r = s.z[i] - s.sign * slope * s.x[i] - level;
      of_cloud += (r > 0 ? kLowQuantile : (r < 0 ? kLowQuantile - 1 : 0)) * (s.x[i] - mean_x[c]);
    }
    pull += of_cloud * s.sign * PointWeight(s);
  }
  return pull;
}

}  // namespace

ParallelFit FitParallel(const std::vector<Series>& series, double least_slope, double most_slope) {
  std::vector<double> mean_x, scratch;
  for (const Series& s : series) {
    const double sum = std::accumulate(s.x.begin(), s.x.end(), 0.0);
    mean_x.push_back(s.x.empty() ? 0 : sum / static_cast<double>(s.x.size()));
  }
  double low = least_slope, high = most_slope;
  while (high - low > kSlopeResolution) {
    const double middle = (low + high) / 2;
    (Pull(series, mean_x, middle, scratch) > 0 ? low : high) = middle;
  }
  ParallelFit fit;
  fit.slope = (low + high) / 2;
  double weights = 0;
  for (const Series& s : series) {
    const double level = s.x.empty() ? 0 : Level(s, fit.slope, scratch);
    fit.level.push_back(level);
    if (s.x.empty()) continue;
    double of_cloud = 0;
    for (size_t i = 0; i < s.x.size(); ++i) of_cloud += Loss(s.z[i] - s.sign * fit.slope * s.x[i] - level);
    fit.cost += of_cloud * PointWeight(s);
    weights += s.weight;
  }
  if (weights > 0) fit.cost /= weights;
  return fit;
}

ParallelFit FitSlopeOnly(const std::vector<Series>& series, double least_slope, double most_slope) {
  double low = least_slope, high = most_slope;
  // Delayed points pull at the slope with the quantile's small weight; where they are all that one direction has, the
  // slope shall stay at 0 unless points that lie below say otherwise.
  double reluctance = 0;
  for (const Series& s : series) {
    const double sum = std::accumulate(s.x.begin(), s.x.end(), 0.0);
    reluctance = std::max(reluctance, 1.2 * kLowQuantile * sum * PointWeight(s));
  }
  const auto residual = [](const Series& s, size_t i, double slope) { return s.z[i] - s.sign * slope * s.x[i]; };
  while (high - low > kSlopeResolution * 10) {
    const double middle = (low + high) / 2;
    double pull = middle > 0 ? -reluctance : reluctance;
    for (const Series& s : series) {
      for (size_t i = 0; i < s.x.size(); ++i) {
        const double r = residual(s, i, middle);
        pull += (r > 0 ? kLowQuantile : (r < 0 ? kLowQuantile - 1 : 0)) * s.sign * s.x[i] * PointWeight(s);
      }
    }
    (pull > 0 ? low : high) = middle;
  }
  ParallelFit fit;
  fit.slope = (low + high) / 2;
  for (const Series& s : series) {
    for (size_t i = 0; i < s.x.size(); ++i) fit.cost += Loss(residual(s, i, fit.slope)) * PointWeight(s);
  }
  return fit;
}

}  // namespace cw::sync
