// SPDX-License-Identifier: Apache-2.0
#include "maps/counters.h"

#include <bpf/libbpf.h>

#include <vector>

namespace cw::maps {
namespace {

constexpr CounterInfo kCounters[] = {
#define CW_COUNTER_INFO(name, text) {#name, text, &cw_counters::name},
    CW_COUNTERS(CW_COUNTER_INFO)
#undef CW_COUNTER_INFO
};

}  // namespace

absl::Span<const CounterInfo> Counters() { return kCounters; }

absl::StatusOr<CountersView> CountersView::Create(BpfMap map) {
  if (auto s = map.ExpectSizes(sizeof(uint32_t), sizeof(cw_counters)); !s.ok()) return s;
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return absl::ErrnoToStatus(-cpus, "count the possible CPUs");
  return CountersView(std::move(map), static_cast<uint32_t>(cpus));
}

absl::StatusOr<cw_counters> CountersView::Sum() const {
  static_assert(sizeof(cw_counters) % 8 == 0, "the kernel rounds per-CPU values up to 8 bytes");
  std::vector<cw_counters> per_cpu(cpus_);
  const uint32_t index = 0;
  if (auto s = map_.Lookup(&index, per_cpu.data()); !s.ok()) return s;
  cw_counters sum = {};
  for (const cw_counters& one : per_cpu) {
    for (const CounterInfo& c : kCounters) sum.*c.field += one.*c.field;
  }
  return sum;
}

}  // namespace cw::maps
