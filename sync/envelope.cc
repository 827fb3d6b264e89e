// SPDX-License-Identifier: Apache-2.0
#include "sync/envelope.h"

#include <algorithm>

namespace cw::sync {

void Envelope::Add(int64_t x_ns, const Point& point, double slope) {
  if (x_ns < 0) return;
  const int64_t index = x_ns / sub_window_ns_;
  if (index <= newest_index_ - sub_windows_) return;  // later than the whole window
  newest_index_ = std::max(newest_index_, index);
  newest_x_ns_ = std::max(newest_x_ns_, x_ns);
  Low& low = lows_[static_cast<size_t>(index % sub_windows_)];
  const int64_t raw = point.rx_ns - point.tx_ns;
  if (low.index == index) {
    const double higher = static_cast<double>(raw - low.raw_ns) - slope * static_cast<double>(x_ns - low.x_ns);
    if (higher >= 0) return;
  }
  low = {index, x_ns, raw, point};
}

void Envelope::CopySince(int64_t since_ns, std::vector<Low>& out) const {
  out.clear();
  if (empty()) return;
  const int64_t oldest = std::max({int64_t{0}, newest_index_ - sub_windows_ + 1, since_ns / sub_window_ns_});
  if (oldest > newest_index_) return;
  auto slot = static_cast<size_t>(oldest % sub_windows_);
  for (int64_t i = oldest; i <= newest_index_; ++i) {
    const Low& low = lows_[slot];
    if (low.index == i && low.x_ns >= since_ns) out.push_back(low);
    slot = slot + 1 == lows_.size() ? 0 : slot + 1;
  }
}

std::vector<Point> Envelope::TakeFinished() {
  std::vector<Point> out;
  if (empty()) return out;
  const int64_t first = std::max({taken_index_ + 1, newest_index_ - sub_windows_ + 1, int64_t{0}});
  for (int64_t i = first; i < newest_index_; ++i) {
    const Low& low = lows_[static_cast<size_t>(i % sub_windows_)];
    if (low.index == i) out.push_back(low.point);
  }
  taken_index_ = std::max(taken_index_, newest_index_ - 1);
  return out;
}

void Envelope::CopyNewest(size_t most, std::vector<Low>& out) const {
  out.clear();
  if (empty()) return;
  const int64_t oldest = std::max<int64_t>(0, newest_index_ - sub_windows_ + 1);
  auto slot =
      static_cast<size_t>(newest_index_ % sub_windows_);  // stepped by hand: divisions would take most of the time
  for (int64_t i = newest_index_; i >= oldest && out.size() < most; --i) {
    if (lows_[slot].index == i) out.push_back(lows_[slot]);
    slot = slot == 0 ? lows_.size() - 1 : slot - 1;
  }
}

void Envelope::Clear() { *this = Envelope(sub_window_ns_, static_cast<int>(sub_windows_)); }

void TripEnvelope::Add(int64_t x_ns, const Trip& trip) {
  if (x_ns < 0) return;
  const int64_t index = x_ns / sub_window_ns_;
  if (index <= newest_index_ - sub_windows_) return;
  newest_index_ = std::max(newest_index_, index);
  newest_x_ns_ = std::max(newest_x_ns_, x_ns);
  Low& low = lows_[static_cast<size_t>(index % sub_windows_)];
  if (low.index != index || trip.RttNs() < low.trip.RttNs()) low = {index, x_ns, trip};
}

void TripEnvelope::CopySince(int64_t since_ns, std::vector<Low>& out) const {
  out.clear();
  const int64_t oldest = std::max({int64_t{0}, newest_index_ - sub_windows_ + 1, since_ns / sub_window_ns_});
  for (int64_t i = oldest; i <= newest_index_; ++i) {
    const Low& low = lows_[static_cast<size_t>(i % sub_windows_)];
    if (low.index == i && low.x_ns >= since_ns) out.push_back(low);
  }
}

std::vector<Trip> TripEnvelope::TakeFinished() {
  std::vector<Trip> out;
  const int64_t first = std::max({taken_index_ + 1, newest_index_ - sub_windows_ + 1, int64_t{0}});
  for (int64_t i = first; i < newest_index_; ++i) {
    const Low& low = lows_[static_cast<size_t>(i % sub_windows_)];
    if (low.index == i) out.push_back(low.trip);
  }
  taken_index_ = std::max(taken_index_, newest_index_ - 1);
  return out;
}

void TripEnvelope::Clear() { *this = TripEnvelope(sub_window_ns_, static_cast<int>(sub_windows_)); }

}  // namespace cw::sync
