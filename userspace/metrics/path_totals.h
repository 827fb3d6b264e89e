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

// Of records of received flows: what a record counted, or the sum of what they grew by.
struct FlowCounts {
  uint64_t packets = 0, bytes = 0;
  uint64_t ce = 0, cnps = 0;  // packets marked CE; congestion notifications
  uint64_t seq_naks = 0, rnr_naks = 0, other_naks = 0;
  uint64_t missing = 0, duplicates = 0;  // PSNs
  // A record that counts less than before was made anew.
  void AddGrowth(const FlowCounts& before, const FlowCounts& now);
};

// All flows of one NIC, of now and before.
struct NicFlows {
  uint64_t sent_packets = 0, sent_bytes = 0;  // to peers
  FlowCounts received;
};

struct PathTotals {
  std::vector<NicPaths> nics;
  std::map<std::string, NicFlows> flows;  // by NIC
  DelayTotals delays;
  double loop_cpu_s = 0;  // what making this cost the agent's loop
};

}  // namespace cw::metrics
