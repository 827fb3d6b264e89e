// SPDX-License-Identifier: Apache-2.0
//
// What the agent itself costs. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::agent {

// CPU share over the last ten seconds or so.
class ResourceMeter {
 public:
  // cpu_ns: of the process; bpf_ns: of its programs (0 where the kernel does not count it). Call about once a second.
  void Sample(int64_t now_ns, int64_t cpu_ns, int64_t bpf_ns);
  double ProcessPercent() const { return Percent(&Point::cpu_ns); }
  double TotalPercent() const { return Percent(&Point::cpu_ns) + Percent(&Point::bpf_ns); }
  static int64_t ProcessCpuNs();
  static uint64_t RssBytes();

 private:
  struct Point {
    int64_t at_ns = 0, cpu_ns = 0, bpf_ns = 0;
  };
  double Percent(int64_t Point::*field) const;
  std::vector<Point> points_;
};

}  // namespace cw::agent
