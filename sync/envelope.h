// SPDX-License-Identifier: Apache-2.0
//
// The low envelope of measurements: of each sub-window of time only the fastest is kept, because queueing only ever
// adds delay. Costs a division and a few comparisons per measurement. Pure; one thread per object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
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

// The item of least RawNs() of each of the last `sub_windows`. Only sub-windows that had one take memory: a pair that
// is probed ten times a second has few.
template <typename Item>
class LowEnvelope {
 public:
  LowEnvelope(int64_t sub_window_ns, int sub_windows) : sub_window_ns_(sub_window_ns), sub_windows_(sub_windows) {}

  struct Low {
    int64_t index = -1;  // x / sub-window
    int64_t x_ns = 0;    // by our clock
    Item item;

    int64_t RawNs() const { return item.RawNs(); }
  };

  // slope: present estimate of d(raw)/dx, so that drift within the sub-window does not decide which is lowest.
  void Add(int64_t x_ns, const Item& item, double slope = 0) {
    if (x_ns < 0) return;
    const int64_t index = x_ns / sub_window_ns_;
    if (index <= newest_index() - sub_windows_) return;  // later than the whole window
    newest_x_ns_ = std::max(newest_x_ns_, x_ns);
    auto place = lows_.end();  // nearly always the newest, or a new one behind it
    while (place != lows_.begin() && std::prev(place)->index >= index) --place;
    if (place == lows_.end() || place->index != index) {
      lows_.insert(place, {index, x_ns, item});
      while (lows_.front().index <= newest_index() - sub_windows_) lows_.pop_front();
      return;
    }
    const double drifted = slope * static_cast<double>(x_ns - place->x_ns);
    if (static_cast<double>(item.RawNs() - place->RawNs()) - drifted < 0) *place = {index, x_ns, item};
  }

  // How many sub-windows are kept from now on.
  void Keep(int sub_windows) {
    sub_windows_ = sub_windows;
    while (!lows_.empty() && lows_.front().index <= newest_index() - sub_windows_) lows_.pop_front();
  }

  // Lows with x ≥ since_ns, oldest first.
  void CopySince(int64_t since_ns, std::vector<Low>& out) const {
    auto from = lows_.end();
    while (from != lows_.begin() && std::prev(from)->x_ns >= since_ns) --from;
    out.assign(from, lows_.end());
  }

  // The newest lows, at most `most`, newest first.
  void CopyNewest(size_t most, std::vector<Low>& out) const {
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, lows_.size()));
    out.assign(lows_.rbegin(), lows_.rbegin() + count);
  }

  // Items of finished sub-windows that were not taken before.
  std::vector<Item> TakeFinished() {
    std::vector<Item> out;
    for (const Low& low : lows_) {
      if (low.index > taken_index_ && low.index < newest_index()) out.push_back(low.item);
    }
    taken_index_ = std::max(taken_index_, newest_index() - 1);
    return out;
  }

  int64_t newest_x_ns() const { return newest_x_ns_; }
  int64_t newest_index() const { return lows_.empty() ? -1 : lows_.back().index; }
  bool empty() const { return lows_.empty(); }
  void Clear() { *this = LowEnvelope(sub_window_ns_, static_cast<int>(sub_windows_)); }

 private:
  int64_t sub_window_ns_;
  int64_t sub_windows_;
  std::deque<Low> lows_;  // by index, rising
  int64_t newest_x_ns_ = 0;
  int64_t taken_index_ = -1;
};

using Envelope = LowEnvelope<Point>;
using TripEnvelope = LowEnvelope<Trip>;

}  // namespace cw::sync
