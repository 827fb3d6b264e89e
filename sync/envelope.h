// SPDX-License-Identifier: Apache-2.0
//
// The low envelope of one-way measurements: of the probes of each sub-window only the fastest is kept, because queueing
// only ever adds delay. Costs a division and a comparison per probe, and a fixed few KiB.
// Pure; one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::sync {

// One probe in one direction. tx_ns by the sender's clock, rx_ns by the receiver's.
struct Point {
  int64_t tx_ns = 0;
  int64_t rx_ns = 0;
};

// A probe and its reply: T1 and T4 by the sender's clock, T2 and T3 by the other's.
struct Trip {
  int64_t t1_ns = 0, t2_ns = 0, t3_ns = 0, t4_ns = 0;

  int64_t OutNs() const { return t2_ns - t1_ns; }
  int64_t BackNs() const { return t4_ns - t3_ns; }
  int64_t RttNs() const { return OutNs() + BackNs(); }  // whatever the clocks' offset is
};

class Envelope {
 public:
  Envelope(int64_t sub_window_ns, int sub_windows)
      : sub_window_ns_(sub_window_ns), sub_windows_(sub_windows), lows_(static_cast<size_t>(sub_windows)) {}

  // The fastest probe of a sub-window: x by our clock, raw = rx − tx.
  struct Low {
    int64_t index = -1;  // x / sub-window; −1 = empty
    int64_t x_ns = 0;
    int64_t raw_ns = 0;
    Point point;
  };

  // slope: present estimate of d(raw)/dx, so that drift within the sub-window does not decide which probe is lowest.
  void Add(int64_t x_ns, const Point& point, double slope);

  // Lows with x ≥ since_ns, oldest first.
  void CopySince(int64_t since_ns, std::vector<Low>& out) const;

  // The newest lows, at most `most`, newest first.
  void CopyNewest(size_t most, std::vector<Low>& out) const;

  // Lows of finished sub-windows that were not taken before.
  std::vector<Point> TakeFinished();

  int64_t newest_x_ns() const { return newest_x_ns_; }
  int64_t newest_index() const { return newest_index_; }
  bool empty() const { return newest_index_ < 0; }
  void Clear();

 private:
  int64_t sub_window_ns_;
  int64_t sub_windows_;
  std::vector<Low> lows_;
  int64_t newest_index_ = -1;
  int64_t newest_x_ns_ = 0;
  int64_t taken_index_ = -1;
};

// The fastest trip of each sub-window. A probe and its reply are handled in one go, so what slows the machine slows
// both, and the difference of the two is far steadier than that of probes of different trips.
class TripEnvelope {
 public:
  struct Low {
    int64_t index = -1;
    int64_t x_ns = 0;
    Trip trip;
  };

  TripEnvelope(int64_t sub_window_ns, int sub_windows)
      : sub_window_ns_(sub_window_ns), sub_windows_(sub_windows), lows_(static_cast<size_t>(sub_windows)) {}

  void Add(int64_t x_ns, const Trip& trip);
  void CopySince(int64_t since_ns, std::vector<Low>& out) const;
  std::vector<Trip> TakeFinished();  // those not taken before
  int64_t newest_x_ns() const { return newest_x_ns_; }
  void Clear();

 private:
  int64_t sub_window_ns_;
  int64_t sub_windows_;
  std::vector<Low> lows_;
  int64_t newest_index_ = -1;
  int64_t newest_x_ns_ = INT64_MIN / 2;
  int64_t taken_index_ = -1;
};

}  // namespace cw::sync
