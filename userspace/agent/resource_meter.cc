// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/resource_meter.h"

#include <unistd.h>

#include <ctime>
#include <fstream>

namespace cw::agent {

void ResourceMeter::Sample(int64_t now_ns, int64_t cpu_ns, int64_t bpf_ns) {
  points_.push_back({now_ns, cpu_ns, bpf_ns});
  if (points_.size() > 11) points_.erase(points_.begin());
}

double ResourceMeter::Percent(int64_t Point::*field) const {
  if (points_.size() < 2) return 0;
  const Point& first = points_.front();
  const Point& last = points_.back();
  return 100.0 * static_cast<double>(last.*field - first.*field) / static_cast<double>(last.at_ns - first.at_ns);
}

int64_t ResourceMeter::ProcessCpuNs() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

uint64_t ResourceMeter::RssBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace cw::agent
