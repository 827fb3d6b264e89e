// SPDX-License-Identifier: Apache-2.0
//
// Service levels of groups of hosts: "p99 of the one-way delay within rack A is at most 8 us, at most 0.1 % of probes
// are lost". Each rule is judged over all probes of all paths from one group to another in the newest interval of each
// host; p99 is of that one distribution (buckets 4.4 % wide), so a single slow path of many does not break a promise.
// No path counts for more than four usual ones: a host cannot outvote the others by numbers that it makes up. Delays
// are as exact as the two hosts' clocks are known to each other. What hosts that are silent or late told does not
// count; where too few probes were answered nothing is known, which is no miss.
//
// Pure: time comes in as an argument. Cost: Take copies the paths of hosts that some rule is about; Look is linear in
// them and their buckets. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
    int64_t newest_ns = 0;
    uint64_t run = 0, batches = 0;
    std::vector<Addr> nics;
    std::vector<Path> paths;
  };
  // Hosts that speak, by name, and whose NICs are whose.
  struct Present {
    std::vector<std::pair<const std::string*, const Host*>> hosts;
    absl::flat_hash_map<Addr, size_t> host_of;
  };
  struct Sum;
  bool MayConcern(const std::string& host) const;
  Present Now(absl::Time now) const;
  Sum SumOf(const SlaRule& rule, const Present& present, const std::map<std::string, std::string>& racks) const;
  static void Explain(const SlaRule& rule, const Sum& sum, bool late, bool lossy, const Present& present,
                      SlaWord& word);
  SlaWord Judge(const SlaRule& rule, const Present& present, const std::map<std::string, std::string>& racks) const;

  const std::vector<SlaRule> rules_;
  std::map<std::string, Host> hosts_;
};

}  // namespace cw::fleet
