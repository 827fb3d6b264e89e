// SPDX-License-Identifier: Apache-2.0
//
// What the agent adds up over all paths of a NIC, so that metrics need no series per path: how many are in which state,
// and a histogram of one-way delays. Values without locks; thread rule: the agent's loop counts, others get copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace cw::metrics {

// Buckets of Prometheus' classic histogram: upper bounds 1 µs · 2^i, the last one above 32 ms.
class DelayHistogram {
 public:
  static constexpr size_t kBounds = 16;
  static int64_t BoundNs(size_t i) { return int64_t{1000} << i; }

  void Add(int64_t delay_ns);
  uint64_t count() const { return count_; }
  double sum_ns() const { return sum_ns_; }
  // Delays of at most BoundNs(i).
  uint64_t Cumulative(size_t i) const;

 private:
  std::array<uint64_t, kBounds> in_{};  // of bucket i alone
  uint64_t count_ = 0;
  double sum_ns_ = 0;
};

// One NIC's probes to peers' NICs of its own rail, or of others.
struct NicDelays {
  DelayHistogram forward, reverse;
};

// By NIC and rail. References stay valid.
class DelayTotals {
 public:
  NicDelays& Of(const std::string& nic, bool own_rail) { return by_nic_[{nic, own_rail}]; }
  const std::map<std::pair<std::string, bool>, NicDelays>& all() const { return by_nic_; }

 private:
  std::map<std::pair<std::string, bool>, NicDelays> by_nic_;
};

struct NicPaths {
  std::string nic;
  uint64_t up = 0, suspect = 0, dead = 0, paused = 0, fresh = 0;  // fresh: never answered yet
  uint64_t damped = 0, lossy = 0, drained = 0;                    // kept free of flows
};

struct PathTotals {
  std::vector<NicPaths> nics;
  DelayTotals delays;
  double loop_cpu_s = 0;  // what making this cost the agent's loop
};

}  // namespace cw::metrics
