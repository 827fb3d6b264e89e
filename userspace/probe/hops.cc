// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/hops.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"

namespace cw::probe {

Hops TrimSilence(Hops hops) {
  while (!hops.empty() && hops.back().is_zero()) hops.pop_back();
  return hops;
}

bool HasGap(const Hops& hops) {
  return hops.empty() || std::any_of(hops.begin(), hops.end(), [](const Addr& a) { return a.is_zero(); });
}

bool Conflict(const Hops& before, const Hops& after) {
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].is_zero()) continue;
    if (i >= before.size()) {
      if (!HasGap(before)) return true;  // a hop behind what was the end
    } else if (!before[i].is_zero() && before[i] != after[i]) {
      return true;
    }
  }
  return false;
}

std::map<uint16_t, Hops> CertainHops(const std::map<uint16_t, Hops>& traced) {
  std::set<Hops> whole;
  for (const auto& [port, hops] : traced) {
    if (!HasGap(hops)) whole.insert(hops);
  }
  std::map<uint16_t, Hops> certain;
  for (const auto& [port, hops] : traced) {
    if (HasGap(hops)) continue;
    // In this order all longer hops that begin with these follow them immediately.
    std::vector<const Hops*> longer;
    for (auto it = whole.upper_bound(hops);
         it != whole.end() && it->size() > hops.size() && std::equal(hops.begin(), hops.end(), it->begin()); ++it) {
      longer.push_back(&*it);
    }
    // [a b] in front of [a b c] only: it is [a b c]. One in front of the other counts as one.
    const bool chain = !longer.empty() && std::all_of(longer.begin(), longer.end(), [&](const Hops* h) {
      return h->size() <= longer.back()->size() && std::equal(h->begin(), h->end(), longer.back()->begin());
    });
    if (longer.empty()) certain[port] = hops;
    if (chain) certain[port] = *longer.back();
  }
  return certain;
}

std::string HopsToString(const Hops& hops) {
  return absl::StrJoin(hops, " ",
                       [](std::string* out, const Addr& a) { out->append(a.is_zero() ? "*" : a.ToString()); });
}

}  // namespace cw::probe
