// SPDX-License-Identifier: Apache-2.0
//
// Service levels of groups of hosts: "p99 of the one-way delay within rack A is at most 8 us, at most 0.1 % of probes
// are lost". Each rule is judged over all probes of all paths from one group to another in the newest interval of each
// host; p99 is of that one distribution (buckets 4.4 % wide), so a single slow path of many does not break a promise.
// Delays are as exact as fleet time. What hosts that are silent told does not count; where too few probes were answered
// nothing is known, which is no miss.
//
// Pure: time comes in as an argument. Cost: Take copies the paths of hosts that some rule is about; Look is linear in
// them and their buckets. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/fleet/findings/sla_rule.h"
#include "userspace/fleet/ingest/ingest.h"

namespace cw::fleet {

class SlaWatch {
 public:
  static constexpr uint64_t kLeastProbes = 200;  // less is no evidence for a 99th percentile
  static constexpr size_t kMostNamed = 3;        // pairs of hosts, the worst

  explicit SlaWatch(std::vector<SlaRule> rules) : rules_(std::move(rules)) {}
  bool empty() const { return rules_.empty(); }

  // A host's newest word.
  void Take(const LiveHost& live);
  void Forget(const std::string& host) { hosts_.erase(host); }
  // racks: host → rack. Same order as the rules. now: by the service's clock.
  std::vector<SlaWord> Look(absl::Time now, const std::map<std::string, std::string>& racks) const;

 private:
  struct Path {
    Addr remote;
    uint64_t base_ns = 0;
    uint32_t sent = 0, lost = 0;
    PackedSketch queue;
  };
  struct Host {
    absl::Time last_seen;
    uint64_t run = 0, batches = 0;
    std::vector<Addr> nics;
    std::vector<Path> paths;
  };
  struct Sum;
  bool MayConcern(const std::string& host) const;
  SlaWord Judge(const SlaRule& rule, const std::map<Addr, const std::string*>& host_of,
                const std::map<std::string, std::string>& racks, absl::Time now) const;

  const std::vector<SlaRule> rules_;
  std::map<std::string, Host> hosts_;
};

}  // namespace cw::fleet
