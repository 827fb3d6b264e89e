// SPDX-License-Identifier: Apache-2.0
#include "sync/neighbours.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <utility>

namespace cw::sync {
namespace {

constexpr size_t kFewMembers = 128;     // among so few, rings often share a link: one ring more makes up for it,
constexpr size_t kVeryFewMembers = 40;  // or two

// The finaliser of splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Position on a ring. The id breaks ties, so that equal hashes do not make hosts disagree.
using Place = std::pair<uint64_t, uint64_t>;

Place PlaceOf(uint64_t id, uint64_t seed, int ring) {
  return {Mix(Mix(seed + static_cast<uint64_t>(ring)) ^ Mix(id)), id};
}

bool AllWithAll(size_t members) { return members <= 2 * static_cast<size_t>(NeighbourDegree(members)) + 1; }

int Rings(size_t members) {
  return NeighbourDegree(members) / 2 + (members < kFewMembers ? 1 : 0) + (members < kVeryFewMembers ? 1 : 0);
}

void SortUnique(std::vector<size_t>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

std::vector<size_t> AllBut(size_t self, size_t n) {
  std::vector<size_t> all;
  for (size_t i = 0; i < n; ++i) {
    if (i != self) all.push_back(i);
  }
  return all;
}

}  // namespace

uint64_t HostId(const std::string& name) {
  uint64_t h = 0xcbf29ce484222325;  // FNV-1a, then mixed
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  h = Mix(h);
  return h == 0 ? 1 : h;
}

std::string HostLabel(uint64_t host_id) {
  char text[18];
  std::snprintf(text, sizeof(text), "#%016" PRIx64, host_id);
  return text;
}

int NeighbourDegree(size_t members) {
  const int log2 = static_cast<int>(std::ceil(std::log2(static_cast<double>(std::max<size_t>(members, 2)))));
  return std::max(kLeastDegree, (log2 + 1) / 2 * 2);
}

std::vector<size_t> ChooseNeighbours(const std::vector<uint64_t>& members, size_t self, uint64_t seed) {
  const size_t n = members.size();
  if (AllWithAll(n)) return AllBut(self, n);
  const int rings = Rings(n);
  std::vector<size_t> chosen;
  for (int ring = 0; ring < rings; ++ring) {
    // The next one above and below our place, and the ends for who stands at an end.
    const Place us = PlaceOf(members[self], seed, ring);
    constexpr size_t kNone = SIZE_MAX;
    size_t above = kNone, below = kNone, lowest = kNone, highest = kNone;
    Place above_at, below_at, lowest_at, highest_at;
    for (size_t i = 0; i < n; ++i) {
      if (i == self) continue;
      const Place p = PlaceOf(members[i], seed, ring);
      if (p > us && (above == kNone || p < above_at)) above = i, above_at = p;
      if (p < us && (below == kNone || p > below_at)) below = i, below_at = p;
      if (lowest == kNone || p < lowest_at) lowest = i, lowest_at = p;
      if (highest == kNone || p > highest_at) highest = i, highest_at = p;
    }
    chosen.push_back(above == kNone ? lowest : above);
    chosen.push_back(below == kNone ? highest : below);
  }
  SortUnique(chosen);
  return chosen;
}

std::vector<std::vector<size_t>> ChooseAllNeighbours(const std::vector<uint64_t>& members, uint64_t seed) {
  const size_t n = members.size();
  const int rings = Rings(n);
  std::vector<std::vector<size_t>> chosen(n);
  if (AllWithAll(n)) {
    for (size_t i = 0; i < n; ++i) chosen[i] = AllBut(i, n);
    return chosen;
  }
  std::vector<std::pair<Place, size_t>> places(n);
  for (int ring = 0; ring < rings; ++ring) {
    for (size_t i = 0; i < n; ++i) places[i] = {PlaceOf(members[i], seed, ring), i};
    std::sort(places.begin(), places.end());
    for (size_t k = 0; k < n; ++k) {
      const size_t a = places[k].second, b = places[(k + 1) % n].second;
      chosen[a].push_back(b);
      chosen[b].push_back(a);
    }
  }
  for (auto& c : chosen) SortUnique(c);
  return chosen;
}

}  // namespace cw::sync
