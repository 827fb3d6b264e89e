// SPDX-License-Identifier: Apache-2.0
//
// Two clocks of one machine, one of which is slewed by others: CLOCK_MONOTONIC, which stamps packets and which an NTP
// client steers, and CLOCK_MONOTONIC_RAW, which nobody steers. Stamps are converted before they reach an estimator, so
// that a slew does not look like drift of the fleet.
//
// How: a paired read (A, B, A) proves that B − A lay within an interval when B was read. Between two changes of the
// slew B − A is a straight line, so the set of lines through all intervals is a convex polygon in the plane of level
// and slope; each read clips it, and when a read would leave nothing, the slew has changed: a new segment begins. A
// wide read proves little and clips nothing; reads wider than a limit are not used at all.
//
// Pure; one thread per object. Source: J. O'Rourke, "An on-line algorithm for fitting straight lines between data
// ranges", Communications of the ACM 24(9), 1981.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace cw::sync {

// The lines y = level + slope·x that pass through every interval so far.
class Corridor {
 public:
  struct Range {
    double low = 0, high = 0;
  };

  // Starts with the lines through [low, high] at x = 0 and |slope| ≤ most_slope.
  Corridor(double low, double high, double most_slope);

  // At x_low the lines are not below low, at x_high not above high. false, and nothing changed: none would be left.
  bool Clip(double x_low, double low, double x_high, double high);
  Range At(double x) const;
  Range slope() const;
  size_t corners() const { return vertices_.size(); }  // of the polygon: what a clip costs

 private:
  struct Vertex {
    double level, slope;
  };
  std::vector<Vertex> vertices_;  // of the polygon, in order; never empty
};

struct ClockDomainOptions {
  int64_t widest_read_ns = 20'000;  // reads that took longer are not used
  double max_slew_ppb = 500'000;    // how fast A is slewed at most, either way: what goes beyond twice this is a step
  int64_t longest_segment_ns = 60'000'000'000;
};

class ClockDomain {
 public:
  explicit ClockDomain(const ClockDomainOptions& options = {}) : options_(options) {}

  // A was read at a_before and a_after, B in between. A few per second suffice for a steady slew; each millisecond,
  // with the stamps that it brings, follows a slew within a microsecond. false: too wide, or out of order, and not
  // used.
  bool AddPair(int64_t a_before_ns, int64_t b_ns, int64_t a_after_ns);

  struct Converted {
    int64_t ns = 0;
    int64_t error_ns = 0;  // the truth is this close if the slew did not change unseen
    int64_t bound_ns = 0;  // … and this close if it did, as fast as it may
  };
  // Nothing: no pair yet, or before the oldest segment that is kept. Times beyond the newest pair are extrapolated.
  std::optional<Converted> ToB(int64_t a_ns) const;
  std::optional<Converted> ToA(int64_t b_ns) const;

  double slew_ppb() const;                       // of B against A, now
  Corridor::Range slew_range() const;            // … every rate that explains the reads, minus 1
  uint32_t changes() const { return changes_; }  // of the slew, steps included
  uint32_t steps() const { return steps_; }
  int64_t newest_a_ns() const { return segments_.empty() ? INT64_MIN : segments_.back().last_a_ns; }
  void Clear();

 private:
  struct Read {
    int64_t a_ns;             // the middle of the two
    int64_t half_ns;          // half of their distance
    int64_t low_ns, high_ns;  // B − A is not below at the second one, not above at the first one
  };
  struct Segment {
    int64_t origin_a_ns;
    int64_t origin_d_ns;  // B − A there, about
    int64_t first_a_ns, last_a_ns;
    double widest_ns, longest_gap_ns;
    Corridor corridor;

    Corridor::Range At(int64_t a_ns) const;  // of B − A − origin_d
  };

  static Segment Begin(const Read& read, double most_slope);
  static bool Extend(Segment& segment, const Read& read);
  void BeginAnew(const Read& read);
  Converted Within(const Segment& segment, int64_t a_ns) const;
  Converted Between(const Segment& before, const Segment& after, int64_t a_ns) const;

  ClockDomainOptions options_;
  std::deque<Segment> segments_;  // oldest first
  std::deque<Read> recent_;
  uint32_t changes_ = 0;
  uint32_t steps_ = 0;
};

}  // namespace cw::sync
