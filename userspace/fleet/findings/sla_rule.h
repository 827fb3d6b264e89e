// SPDX-License-Identifier: Apache-2.0
//
// What a group of hosts was promised, and how that stands. Value types; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cw::fleet {

// Hosts by name (shell patterns) or by rack; neither: all.
struct SlaGroup {
  std::vector<std::string> hosts, racks;
  bool empty() const { return hosts.empty() && racks.empty(); }
  bool operator==(const SlaGroup&) const = default;
};

struct SlaRule {
  std::string name;
  SlaGroup from, to;                                // `to` empty: among themselves
  absl::Duration p99_delay = absl::ZeroDuration();  // of one-way delay, at most; zero: not looked at
  double loss = 0;                                  // share of probes, at most; 0: not looked at
  bool operator==(const SlaRule&) const = default;
};

struct SlaWord {
  std::string name;
  bool delay_known = false, loss_known = false;  // what the rule looks at, with probes enough
  bool missed = false;
  double p99_ns = 0, loss = 0;  // as measured; of what the rule looks at
  uint64_t probes = 0;
  size_t paths = 0, hosts = 0;        // that send
  std::vector<std::string> evidence;  // short sentences
  std::vector<std::string> affected;  // hosts whose own paths are beyond what was promised, ascending
};

}  // namespace cw::fleet
