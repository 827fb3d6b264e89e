// SPDX-License-Identifier: Apache-2.0
#include "sync/path_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace cw::sync {
namespace {

constexpr double kLeastToleranceNs = 300;  // floors of equal paths differ by so much on kernel stamps
constexpr double kNoises = 12;             // under load floors are far apart by chance
constexpr double kStay = 1.5;              // times the tolerance, for ways in use
constexpr double kEnoughTrips = 1.0 / 16;  // of all
constexpr uint32_t kEnoughPackets = 4;     // in a piece of time
constexpr int64_t kStarvedNs = 500'000'000;

double Least(absl::Span<const Way> ways) {
  double least = HUGE_VAL;
  for (const Way& way : ways) {
    if (way.known) least = std::min(least, way.floor_ns);
  }
  return least;
}

// Of both directions, so that one level means the same in both.
double Tolerance(absl::Span<const Way> there, absl::Span<const Way> back) {
  std::vector<double> noises;
  for (const absl::Span<const Way> ways : {there, back}) {
    for (const Way& way : ways) {
      if (way.known) noises.push_back(way.noise_ns);
    }
  }
  if (noises.empty()) return kLeastToleranceNs;
  const auto middle = noises.begin() + static_cast<std::ptrdiff_t>(noises.size() / 2);
  std::nth_element(noises.begin(), middle, noises.end());
  return std::max(kLeastToleranceNs, kNoises * *middle);
}

struct Direction {
  absl::Span<const Way> ways;
  double least_ns;
  uint32_t used_before;

  // Known ways at the level, as bits.
  uint32_t At(double level_ns, double tolerance_ns) const {
    uint32_t bits = 0;
    for (size_t w = 0; w < ways.size(); ++w) {
      const double reach_ns = (used_before >> w & 1) != 0 ? kStay * tolerance_ns : tolerance_ns;
      const double longer_ns = ways[w].floor_ns - least_ns;
      if (ways[w].known && std::abs(longer_ns - level_ns) <= reach_ns) bits |= 1u << w;
    }
    return bits;
  }
  uint32_t Known() const {
    uint32_t bits = 0;
    for (size_t w = 0; w < ways.size(); ++w) bits |= ways[w].known ? 1u << w : 0;
    return bits;
  }
};

double Share(uint32_t used, uint32_t known) {
  return static_cast<double>(__builtin_popcount(used)) / std::max(__builtin_popcount(known), 1);
}

}  // namespace

WayChoice ChooseWays(absl::Span<const Way> there, absl::Span<const Way> back, const WayChoice& before) {
  const double tolerance_ns = Tolerance(there, back);
  const Direction out{there, Least(there), ~before.there_left_out}, in{back, Least(back), ~before.back_left_out};
  std::vector<double> levels;
  for (const Way& way : there) {
    if (way.known) levels.push_back(way.floor_ns - out.least_ns);
  }
  std::sort(levels.begin(), levels.end());
  WayChoice choice;
  double best = 0;
  for (const double level_ns : levels) {
    const uint32_t used_out = out.At(level_ns, tolerance_ns), used_in = in.At(level_ns, tolerance_ns);
    const double share = Share(used_out, out.Known()) * Share(used_in, in.Known());
    if (share <= best) continue;
    choice = {out.Known() & ~used_out, in.Known() & ~used_in, level_ns};
    best = share;
    if (share >= kEnoughTrips) break;
  }
  return choice;
}

void PathChoice::Floor::Add(int64_t number, int64_t ns) {
  const auto at = static_cast<size_t>(number) % kPieces;
  if (piece[at] != number + 1) {
    piece[at] = number + 1;
    packets[at] = 0;
    least_ns[at] = ns;
  }
  ++packets[at];
  least_ns[at] = std::min(least_ns[at], ns);
}

// By the pieces that are finished: all of them have to be full.
Way PathChoice::Floor::Judge(int64_t number) const {
  int64_t lowest = INT64_MAX, highest = INT64_MIN;
  for (int64_t past = number - static_cast<int64_t>(kPieces) + 1; past < number; ++past) {
    const auto at = static_cast<size_t>(past) % kPieces;
    if (past < 0 || piece[at] != past + 1 || packets[at] < kEnoughPackets) return {};
    lowest = std::min(lowest, least_ns[at]);
    highest = std::max(highest, least_ns[at]);
  }
  return {true, static_cast<double>(lowest), static_cast<double>(highest - lowest)};
}

void PathChoice::Judge() {
  for (size_t w = 0; w < kMostWays; ++w) {
    there_[w] = floors_there_[w].Judge(piece_);
    back_[w] = floors_back_[w].Judge(piece_);
  }
  choice_ = ChooseWays(there_, back_, choice_);
}

bool PathChoice::Admit(int64_t now_ns, size_t there, size_t back, int64_t there_ns, int64_t back_ns, bool line_known) {
  const int64_t piece = now_ns / kPieceNs;
  if (piece < piece_) Reset();  // our clock was set back
  if (line_known) {
    if (piece > piece_) {
      piece_ = piece;
      Judge();
    }
    if (there < kMostWays) floors_there_[there].Add(piece, there_ns);
    if (back < kMostWays) floors_back_[back].Add(piece, back_ns);
  }
  const auto left_out = [](uint32_t bits, size_t way) { return way < kMostWays ? (bits >> way & 1) != 0 : bits != 0; };
  const bool odd = left_out(choice_.there_left_out, there) || left_out(choice_.back_left_out, back);
  if (odd && now_ns - admitted_ns_ < kStarvedNs) return false;
  if (odd) choice_ = {};  // the ways in use are gone
  admitted_ns_ = now_ns;
  return true;
}

double PathChoice::Longer(const Ways& ways, size_t way) {
  return way < kMostWays && ways[way].known ? ways[way].floor_ns - Least(ways) : -1;
}

void PathChoice::ForgetThere(size_t way) {
  if (way >= kMostWays) return;
  floors_there_[way] = {};
  there_[way] = {};
  choice_.there_left_out &= ~(1u << way);
}

}  // namespace cw::sync
