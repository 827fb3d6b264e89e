// SPDX-License-Identifier: Apache-2.0
//
// One direction of one path, from its probes: one-way delay, its windowed minimum (base), queueing delay (OWD − base),
// jitter and loss, over the last 1, 10 and 60 s. Memory is bounded: the last ten seconds are kept one by one as
// sketches, older ones in blocks of ten seconds. Jitter after RFC 3550 §6.4.1, as a plain mean instead of the running
// one. Pure: time comes in (any monotonic clock). Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "userspace/telemetry/sketch.h"

namespace cw::telemetry {

inline constexpr std::array<int, 3> kWindowsS = {1, 10, 60};

struct DelayWindow {
  int seconds = 0;
  uint64_t sent = 0;    // probes
  uint64_t known = 0;   // of which it is known whether they arrived …
  uint64_t lost = 0;    // … and that they did not
  uint64_t outage = 0;  // of those lost: more than three in a row; that is an outage, and no share that is lost
  Sketch owd;
  Sketch queueing;
  double jitter_ns = 0;  // mean |difference of successive delays|
  double Loss() const { return known > 0 ? static_cast<double>(lost) / static_cast<double>(known) : 0; }
};

class PathDelay {
 public:
  // Base is the minimum of the last 60 to 70 s.
  void AddProbe(int64_t now_ns, int64_t owd_ns);
  // What became of probes on their path there is known now, in their order.
  void AddFates(int64_t now_ns, uint32_t known, uint32_t lost);
  // Probes sent since the last call, or since Restart; they are spread evenly over the time since then.
  void AddSent(int64_t now_ns, uint64_t probes);
  // A clock step: delays measured before say nothing about those that come. What was lost was lost.
  void ForgetDelays();
  // Other hops: it is another path from now on.
  void Restart(int64_t now_ns);

  int64_t BaseNs() const { return base_ns_; }  // INT64_MAX: nothing measured
  // The window that ends with the second under way; whole blocks, so 10 covers the last 9 to 10 and 60 the last 51
  // to 60. `sent` is that of as many complete seconds, up to the last AddSent.
  DelayWindow Window(int64_t now_ns, int seconds) const;
  uint64_t samples() const { return samples_; }
  size_t MemoryBytes() const;

 private:
  // [from_s, from_s + seconds) of the caller's clock.
  struct Block {
    int64_t from_s = 0;
    uint16_t seconds = 1;
    uint32_t known = 0, lost = 0, outage = 0;
    float sent = 0;
    uint32_t jitter_count = 0;
    float jitter_sum_ns = 0;
    Sketch owd;
    void Merge(const Block& other);
  };
  // The block of a second, made if it is missing; null: older than what is kept one by one.
  Block* At(int64_t second);
  void Age(int64_t now_s);
  void FindBase();

  std::vector<Block> blocks_;  // oldest first, at most some 16
  int64_t base_ns_ = INT64_MAX;
  int64_t last_owd_ns_ = 0;
  int64_t counted_to_ns_ = INT64_MIN;  // probes sent before are known
  uint32_t lost_in_row_ = 0;
  bool has_last_ = false;
  uint64_t samples_ = 0;
};

// "12.3 µs"; below the clock's error (at least 10 ns) "< 0.40 µs"; never negative.
std::string FormatOwd(double owd_ns, double error_ns);

}  // namespace cw::telemetry
