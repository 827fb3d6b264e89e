// SPDX-License-Identifier: Apache-2.0
//
// The low envelope of measurements: of each sub-window of time only the fastest is kept, because queueing only ever
// adds delay. Costs a division and a comparison per measurement, and a fixed few KiB. Pure; one thread per object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::sync {

// One probe in one direction. tx_ns by the sender's clock, rx_ns by the receiver's.
struct Point {
  int64_t tx_ns = 0;
  int64_t rx_ns = 0;

  int64_t RawNs() const { return rx_ns - tx_ns; }  // delay and offset
};

// A probe and its reply: T1 and T4 by the sender's clock, T2 and T3 by the other's. What slows the machine slows both
// ways, and the difference of the two is far steadier than that of probes of different trips.
struct Trip {
  int64_t t1_ns = 0, t2_ns = 0, t3_ns = 0, t4_ns = 0;

  int64_t OutNs() const { return t2_ns - t1_ns; }
  int64_t BackNs() const { return t4_ns - t3_ns; }
  int64_t RttNs() const { return OutNs() + BackNs(); }  // whatever the clocks' offset is
  int64_t RawNs() const { return RttNs(); }
};

// The item of least RawNs() of each of the last `sub_windows`.
template <typename Item>
class LowEnvelope {
 public:
  LowEnvelope(int64_t sub_window_ns, int sub_windows)
      : sub_window_ns_(sub_window_ns), sub_windows_(sub_windows), lows_(static_cast<size_t>(sub_windows)) {}

  struct Low {
    int64_t index = -1;  // x / sub-window; −1 = empty
    int64_t x_ns = 0;    // by our clock
    Item item;

    int64_t RawNs() const { return item.RawNs(); }
  };

  // slope: present estimate of d(raw)/dx, so that drift within the sub-window does not decide which is lowest.
  void Add(int64_t x_ns, const Item& item, double slope = 0) {
    if (x_ns < 0) return;
    const int64_t index = x_ns / sub_window_ns_;
    if (index <= newest_index_ - sub_windows_) return;  // later than the whole window
    newest_index_ = std::max(newest_index_, index);
    newest_x_ns_ = std::max(newest_x_ns_, x_ns);
    Low& low = lows_[static_cast<size_t>(index % sub_windows_)];
    if (low.index == index) {
      const double drifted = slope * static_cast<double>(x_ns - low.x_ns);
      if (static_cast<double>(item.RawNs() - low.RawNs()) - drifted >= 0) return;
    }
    low = {index, x_ns, item};
  }

  // Lows with x ≥ since_ns, oldest first.
  void CopySince(int64_t since_ns, std::vector<Low>& out) const {
    out.clear();
    const int64_t oldest = std::max({int64_t{0}, newest_index_ - sub_windows_ + 1, since_ns / sub_window_ns_});
    if (oldest > newest_index_) return;
    auto slot = static_cast<size_t>(oldest % sub_windows_);
    for (int64_t i = oldest; i <= newest_index_; ++i) {
      const Low& low = lows_[slot];
      if (low.index == i && low.x_ns >= since_ns) out.push_back(low);
      slot = slot + 1 == lows_.size() ? 0 : slot + 1;
    }
  }

  // The newest lows, at most `most`, newest first.
  void CopyNewest(size_t most, std::vector<Low>& out) const {
    out.clear();
    if (empty()) return;
    const int64_t oldest = std::max<int64_t>(0, newest_index_ - sub_windows_ + 1);
    auto slot = static_cast<size_t>(newest_index_ % sub_windows_);  // stepped by hand: divisions would take most time
    for (int64_t i = newest_index_; i >= oldest && out.size() < most; --i) {
      if (lows_[slot].index == i) out.push_back(lows_[slot]);
      slot = slot == 0 ? lows_.size() - 1 : slot - 1;
    }
  }

  // Items of finished sub-windows that were not taken before.
  std::vector<Item> TakeFinished() {
    std::vector<Item> out;
    const int64_t first = std::max({taken_index_ + 1, newest_index_ - sub_windows_ + 1, int64_t{0}});
    for (int64_t i = first; i < newest_index_; ++i) {
      const Low& low = lows_[static_cast<size_t>(i % sub_windows_)];
      if (low.index == i) out.push_back(low.item);
    }
    taken_index_ = std::max(taken_index_, newest_index_ - 1);
    return out;
  }

  int64_t newest_x_ns() const { return newest_x_ns_; }
  int64_t newest_index() const { return newest_index_; }
  bool empty() const { return newest_index_ < 0; }
  void Clear() { *this = LowEnvelope(sub_window_ns_, static_cast<int>(sub_windows_)); }

 private:
  int64_t sub_window_ns_;
  int64_t sub_windows_;
  std::vector<Low> lows_;
  int64_t newest_index_ = -1;
  int64_t newest_x_ns_ = 0;
  int64_t taken_index_ = -1;
};

using Envelope = LowEnvelope<Point>;
using TripEnvelope = LowEnvelope<Trip>;

}  // namespace cw::sync
