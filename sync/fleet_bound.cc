// SPDX-License-Identifier: Apache-2.0
#include "sync/fleet_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sync/neighbours.h"
#include "sync/vote.h"

namespace cw::sync {
namespace {

// What is told counts for less with each link, so that a width which nobody sees any more dies away instead of being
// told in circles; bound_ns makes up for it.
constexpr double kPerHop = 0.93;
constexpr double kKept = 0.9, kKeptS = 0.1;  // of what was known, after so long: news from far arrives one link a round

double Largest(std::vector<double>& values, size_t rank) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(rank), values.end(), std::greater<>());
  return values[rank];
}

}  // namespace

int BoundHops(size_t members) {
  const int degree = NeighbourDegree(members);
  if (members <= 2 * static_cast<size_t>(kLeastDegree) + 1) return 1;  // all are neighbours
  const double branches = degree - 1 - MostLiars(degree);
  return 1 + static_cast<int>(std::ceil(std::log(static_cast<double>(members)) / std::log(branches)));
}

void FleetBound::Update(double passed_s, const std::vector<Told>& present, int liars,
                        const std::vector<double>& absent_s, double growth_ppb) {
  if (!present.empty()) {
    scratch_.clear();
    for (const Told& t : present) {
      scratch_.push_back(std::max({0.0, t.apart_ns, kPerHop * std::min(t.width_ns, kNowhereNs)}));
    }
    const double seen = Largest(scratch_, static_cast<size_t>(liars));
    width_ns_ = std::max(width_ns_ * std::pow(kKept, passed_s / kKeptS), seen);
  }
  // So many may just be down. More may be a part of the fleet that goes on without us and says "synchronised", which
  // one host alone does not.
  const auto all = static_cast<int>(present.size() + absent_s.size());
  const auto down = static_cast<size_t>(present.empty() ? 0 : std::max(1, MostLiars(all)));
  if (absent_s.size() <= down) return;
  scratch_ = absent_s;
  width_ns_ = std::max(width_ns_, growth_ppb * Largest(scratch_, down));
}

double FleetBound::bound_ns(int hops) const {
  double sum = 0, width = width_ns_;
  for (int k = 0; k < hops; ++k, width /= kPerHop) sum += width;
  return std::min(sum, kNowhereNs);
}

}  // namespace cw::sync
