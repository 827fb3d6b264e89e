// SPDX-License-Identifier: Apache-2.0
// What the emulator measures of one flow, at the side that receives payload and at the side that posts messages.
//
// Times: nanoseconds of CLOCK_MONOTONIC. Thread rule: one writer and its lock; copies are free to read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cw::lab {

// Latencies in buckets of a 32nd of an octave: quantiles are right within 1.6 %. Fixed memory, no allocation.
class LatencyHistogram {
 public:
  void Add(int64_t ns);
  uint64_t count() const { return count_; }
  int64_t max_ns() const { return max_ns_; }
  // Middle of the bucket that holds the q-quantile, the maximum for q = 1, 0 when empty. q in [0, 1].
  int64_t QuantileNs(double q) const;

 private:
  static constexpr int kSubBits = 5;
  static constexpr int kBuckets = 64 << kSubBits;
  std::array<uint32_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  int64_t max_ns_ = 0;
};

// The last `capacity` arrivals of packets with payload.
class ArrivalRing {
 public:
  explicit ArrivalRing(size_t capacity);
  void Add(int64_t ns, bool in_order);

  struct After {
    std::optional<int64_t> any_ns;       // first packet with payload at or after the time asked for
    std::optional<int64_t> in_order_ns;  // first of them that was delivered
    bool complete = true;                // false: the ring no longer reaches back to the time asked for
  };
  After FirstAfter(int64_t ns) const;

 private:
  size_t capacity_;
  uint64_t added_ = 0;
  std::vector<uint64_t> slots_;  // ns · 2 + in_order
};

struct Gap {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t Length() const { return end_ns - begin_ns; }
};

class ReceiveStats {
 public:
  // Goodput bins of `bin_ns` are counted from `origin_ns` on; at most `max_bins` of them.
  ReceiveStats(int64_t origin_ns, int64_t bin_ns, size_t max_bins);
  void OnData(int64_t now_ns, uint32_t bytes, bool in_order);
  void OnMessage(uint64_t bytes);

  const std::vector<uint64_t>& bins() const { return bins_; }  // delivered payload bytes
  uint64_t bytes() const { return bytes_; }
  uint64_t packets() const { return packets_; }
  uint64_t messages() const { return messages_; }
  uint64_t message_bytes() const { return message_bytes_; }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }
  const Gap& longest_gap() const { return longest_gap_; }  // between deliveries, whatever the sender had to send

 private:
  int64_t origin_ns_;
  int64_t bin_ns_;
  size_t max_bins_;
  std::vector<uint64_t> bins_;
  uint64_t bytes_ = 0;
  uint64_t packets_ = 0;
  uint64_t messages_ = 0;
  uint64_t message_bytes_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  Gap longest_gap_;
};

struct SendStats {
  static constexpr int64_t kLongStallNs = 2'000'000;
  static constexpr size_t kStalls = 1024;

  static constexpr size_t kNaks = 4096;

  void OnStall(const Gap& stall);
  void OnNak(int64_t now_ns) {
    if (naks_ns.size() < kNaks) naks_ns.push_back(now_ns);
  }
  LatencyHistogram latency;  // from post to completion, which for retried messages includes every retry
  uint64_t messages_posted = 0;
  uint64_t messages_done = 0;
  uint64_t bytes_done = 0;
  int64_t first_post_ns = 0;
  int64_t last_done_ns = 0;
  Gap longest_message;           // post and completion of the slowest message
  Gap longest_stall;             // something was unacknowledged and no acknowledgement made progress
  std::vector<Gap> stalls;       // of at least kLongStallNs, the newest kStalls of them
  std::vector<int64_t> naks_ns;  // when sequence errors were told, the first kNaks of them
  int64_t dead_ns = 0;           // when the queue pair died; 0: alive
};

}  // namespace cw::lab
