// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/max_min.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace cw::sim {

void MaxMin::Share(std::vector<RoutedFlow>& flows) {
  const size_t links = load_.size();
  std::vector<int> count(links), start(links + 1);
  for (const RoutedFlow& f : flows) {
    for (int i = 0; i < f.hops; ++i) ++count[f.links[i]];
  }
  std::partial_sum(count.begin(), count.end(), start.begin() + 1);
  std::vector<int> at(start.begin(), start.end() - 1), members(start.back());
  for (size_t f = 0; f < flows.size(); ++f) {
    flows[f].rate = -1;
    for (int i = 0; i < flows[f].hops; ++i) members[at[flows[f].links[i]]++] = static_cast<int>(f);
  }
  std::fill(load_.begin(), load_.end(), 0);
  std::fill(held_back_.begin(), held_back_.end(), 0);
  using Entry = std::pair<double, int>;
  std::vector<Entry> entries;
  for (size_t l = 0; l < links; ++l) {
    if (count[l] > 0) entries.emplace_back(1.0 / count[l], static_cast<int>(l));
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least(std::greater<>(), std::move(entries));
  while (!least.empty()) {
    const auto [share, link] = least.top();
    least.pop();
    if (count[link] == 0) continue;
    const double now = (1 - load_[link]) / count[link];
    if (now > share * (1 + 1e-9)) {  // others on it were fixed meanwhile
      least.push({now, link});
      continue;
    }
    held_back_[link] = count[link];
    share_[link] = now;
    for (int m = start[link]; m < start[link + 1]; ++m) {
      RoutedFlow& flow = flows[members[m]];
      if (flow.rate >= 0) continue;
      flow.rate = now;
      for (int i = 0; i < flow.hops; ++i) {
        load_[flow.links[i]] += now;
        --count[flow.links[i]];
      }
    }
  }
}

}  // namespace cw::sim
