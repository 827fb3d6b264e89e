// SPDX-License-Identifier: Apache-2.0
//
// The exit-reason counters: per CPU in the kernel, one sum here, each with the name and the text of CW_COUNTERS.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "maps/bpf_map.h"

namespace cw::maps {

struct CounterInfo {
  const char* name;
  const char* text;  // what it counts
  __u64 cw_counters::*field;
};

// All counters in the ABI's order: for (const auto& c : Counters()) print(c.name, sums.*c.field).
absl::Span<const CounterInfo> Counters();

// Threads: Sum may be called from several threads.
class CountersView {
 public:
  static absl::StatusOr<CountersView> Create(BpfMap map);
  // Sum over the CPUs since the map was made.
  absl::StatusOr<cw_counters> Sum() const;
  const BpfMap& map() const { return map_; }

 private:
  CountersView(BpfMap map, uint32_t cpus) : map_(std::move(map)), cpus_(cpus) {}
  BpfMap map_;
  uint32_t cpus_;
};

}  // namespace cw::maps
