// SPDX-License-Identifier: Apache-2.0
//
// Have a pair's fastest round trips become longer or shorter than they were? The change may be on one way alone. Then
// half of it is an error of the clock between the two, and neither end can see it, nor anybody else where all links of
// a rack change alike.
//
// Of each second the fastest trip is taken, and of three seconds the fastest of these: queues add delay, but seldom to
// all. What that wanders by is learned from how seconds leave the straight line through their neighbours, so that a
// steady growth does not hide as noise. What it is compared with follows over ten minutes: then another length has
// become the usual one.
//
// Times in ns, by our clock. No errors. Pure; one thread per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cw::sync {

class RoundTripChange {
 public:
  void Add(int64_t now_ns, int64_t rtt_ns);
  // Other paths are measured on from now on: their length is no news.
  void PathsChanged();
  void Reset() { *this = RoundTripChange(); }

  // How much longer or shorter round trips are, beyond what they wander by. 0 in the first seconds.
  double ChangeNs() const;

 private:
  static constexpr size_t kPieces = 3;

  void Close();
  void LearnWander(double least_ns);
  void Follow(double floor_ns);

  int64_t piece_ = -1;  // the second under way
  double least_ns_ = 0;
  std::array<double, kPieces> past_ns_{};  // of the last seconds, newest first
  size_t known_ = 0;
  double floor_ns_ = 0, usual_ns_ = 0, for_s_ = 0;
  double carried_ns_ = 0;  // what was found before the paths changed
  double wander_ns_ = 0, wander_for_s_ = 0;
};

}  // namespace cw::sync
