// SPDX-License-Identifier: Apache-2.0
#include "sync/vote.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cw::sync {
namespace {

constexpr int kOpinionVotes = 2;
constexpr int kOwnVotes = 3;  // more than one opinion, less than two: decides ties only

}  // namespace

Clique FindClique(std::vector<Opinion>& opinions, double own_tolerance) {
  static thread_local std::vector<std::pair<double, int>> edges;  // position, votes that begin (+) or end (−) here
  edges.clear();
  for (const Opinion& o : opinions) {
    edges.emplace_back(o.value - o.tolerance, kOpinionVotes);
    edges.emplace_back(o.value + o.tolerance, -kOpinionVotes);
  }
  if (own_tolerance >= 0) {
    edges.emplace_back(-own_tolerance, kOwnVotes);
    edges.emplace_back(own_tolerance, -kOwnVotes);
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;  // touching intervals overlap
  });
  Clique best;
  int votes = 0, most = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    votes += edges[i].second;
    if (votes > most) {
      most = votes;
      best.low = edges[i].first;
      best.high = edges[i + 1].first;  // something that has begun ends later
    }
  }
  const double middle = best.low + (best.high - best.low) / 2;
  best.with_us = own_tolerance >= 0 && std::abs(middle) <= own_tolerance;
  for (Opinion& o : opinions) {
    o.member = middle >= o.value - o.tolerance && middle <= o.value + o.tolerance;
    best.members += o.member;
  }
  return best;
}

double TrimmedMean(std::vector<Opinion>& opinions, int f) {
  static thread_local std::vector<Opinion*> members;
  members.clear();
  for (Opinion& o : opinions) {
    o.trimmed = false;
    if (o.member) members.push_back(&o);
  }
  if (members.empty()) return 0;
  const int n = static_cast<int>(members.size());
  f = std::clamp(f, 0, (n - 1) / 2);
  std::sort(members.begin(), members.end(), [](const Opinion* a, const Opinion* b) { return a->value < b->value; });
  double sum = 0, weights = 0;
  for (int i = 0; i < n; ++i) {
    Opinion& o = *members[static_cast<size_t>(i)];
    o.trimmed = i < f || i >= n - f;
    if (o.trimmed) continue;
    sum += o.weight * o.value;
    weights += o.weight;
  }
  return weights > 0 ? sum / weights : 0;
}

Spread RobustSpread(std::vector<double>& values) {
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  Spread s;
  s.median = *middle;
  for (double& v : values) v = std::abs(v - s.median);
  std::nth_element(values.begin(), middle, values.end());
  s.deviation = 1.4826 * *middle;
  return s;
}

}  // namespace cw::sync
