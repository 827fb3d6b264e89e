// SPDX-License-Identifier: Apache-2.0
//
// The hw_counters of RDMA devices as their drivers tell them (/sys/class/infiniband/DEVICE/ports/N/hw_counters):
// congestion notifications, sequence errors, retransmissions, which no other exporter reads.
// Thread rule: any thread. A counter that cannot be read is left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cw::metrics {

struct HwCounter {
  std::string device, port;
  std::string name;  // as its file
  uint64_t value = 0;
};

struct HwCounters {
  std::vector<HwCounter> counters;  // by device, port, name
  uint64_t left_out = 0;            // beyond the limit below: hosts with hundreds of virtual functions
};

inline constexpr size_t kMaxHwCounters = 4096;

// sys_root: "/sys", or a fixture's.
HwCounters ReadHwCounters(const std::string& sys_root);

// A state, not a count: it may fall (active_qps, watermark_qps of bnxt_re).
bool IsHwGauge(const std::string& name);
// The metric's name without "cwfabric_rdma_": lower case, and "_total" behind a count.
std::string HwMetricName(const std::string& name);
// One sentence.
std::string HwMetricHelp(const std::string& name);

}  // namespace cw::metrics
