// SPDX-License-Identifier: Apache-2.0
//
// Which paths of a pair of NICs its clocks are measured on.
//
// A way is one path in one direction. A probe takes a way there, its reply a way back, and each reply another one (the
// peer's paths in turn), so the two of a trip may be of different length although every link is as long one way as the
// other: then half the difference is an error of the clock that no averaging removes. What can be told without knowing
// the offset is how much longer each way is than the shortest of its direction, by the fastest packets of some seconds.
// Used are trips whose two ways are longer by the same: they are as symmetric as the two shortest ones are. Of several
// such levels the lowest is taken that enough trips have.
//
// Nothing is left out before the ways are known (some three seconds),
// within what their floors wander by, or when no trip would be left. What all ways of one direction have in common
// nobody sees: clock.md.
//
// Pure; one thread per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace cw::sync {

inline constexpr size_t kMostWays = 16;

struct Way {
  bool known = false;
  double floor_ns = 0;  // fastest packet, with the clocks' offset or without: the same in all ways of a direction
  double noise_ns = 0;  // what the floor wanders by
};

struct WayChoice {
  uint32_t there_left_out = 0, back_left_out = 0;  // bit w: way w
  double level_ns = 0;                             // by how much the ways that are used are longer than the shortest
  bool operator==(const WayChoice&) const = default;
  bool SameWays(const WayChoice& o) const {
    return there_left_out == o.there_left_out && back_left_out == o.back_left_out;
  }
};

// before: the choice up to now; its ways are not left out for a little more than the tolerance.
WayChoice ChooseWays(absl::Span<const Way> there, absl::Span<const Way> back, const WayChoice& before = {});

class PathChoice {
 public:
  // Whether the clock should take this trip. there, back:
  // numbers of its ways; kMostWays and more: not known. The delays by the present line between the clocks; line_known:
  // it is good to less than a microsecond.
  bool Admit(int64_t now_ns, size_t there, size_t back, int64_t there_ns, int64_t back_ns, bool line_known);

  const WayChoice& choice() const { return choice_; }
  // By how much a way is longer than the shortest of its direction; < 0: not known.
  double LongerThereNs(size_t way) const { return Longer(there_, way); }
  double LongerBackNs(size_t way) const { return Longer(back_, way); }
  void ForgetThere(size_t way);           // it is another path from now on
  void Reset() { *this = PathChoice(); }  // after a step of either clock

 private:
  static constexpr int64_t kPieceNs = 1'000'000'000;
  static constexpr size_t kPieces = 4;

  // The fastest packet of each of the last pieces of time.
  struct Floor {
    std::array<int64_t, kPieces> piece{};  // number + 1; 0: none
    std::array<int64_t, kPieces> least_ns{};
    std::array<uint32_t, kPieces> packets{};
    void Add(int64_t number, int64_t ns);
    Way Judge(int64_t number) const;
  };
  using Floors = std::array<Floor, kMostWays>;
  using Ways = std::array<Way, kMostWays>;

  static double Longer(const Ways& ways, size_t way);
  void Judge();

  Floors floors_there_, floors_back_;
  Ways there_, back_;
  WayChoice choice_;
  int64_t piece_ = 0;  // number of the one under way
  int64_t admitted_ns_ = 0;
};

}  // namespace cw::sync
