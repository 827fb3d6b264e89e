// SPDX-License-Identifier: Apache-2.0
//
// The low envelope of one-way measurements: of the probes of each 20 ms only the fastest is kept, because queueing only
// ever adds delay. Costs a comparison per probe and a fixed few KiB.
// Pure; one thread per object.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace cw::sync {

// One probe in one direction. tx_ns by the sender's clock, rx_ns by the receiver's.
struct Point {
  int64_t tx_ns = 0;
  int64_t rx_ns = 0;
};

class Envelope {
 public:
  static constexpr int64_t kSubWindowNs = 20'000'000;
  static constexpr int kSubWindows = 200;  // 4 s

  // The fastest probe of a sub-window: x by our clock, raw = rx − tx.
  struct Low {
    int64_t index = -1;  // x / kSubWindowNs; −1 = empty
    int64_t x_ns = 0;
    int64_t raw_ns = 0;
    Point point;
  };

  // slope: present estimate of d(raw)/dx, so that drift within the sub-window does not decide which probe is lowest.
  void Add(int64_t x_ns, const Point& point, double slope);

  // Lows with x ≥ since_ns, oldest first.
  void CopySince(int64_t since_ns, std::vector<Low>& out) const;

  // Lows of finished sub-windows that were not taken before.
  std::vector<Point> TakeFinished();

  int64_t newest_x_ns() const { return newest_x_ns_; }
  int64_t newest_index() const { return newest_index_; }
  bool empty() const { return newest_index_ < 0; }
  void Clear();

 private:
  std::array<Low, kSubWindows> lows_{};
  int64_t newest_index_ = -1;
  int64_t newest_x_ns_ = 0;
  int64_t taken_index_ = -1;
};

}  // namespace cw::sync
