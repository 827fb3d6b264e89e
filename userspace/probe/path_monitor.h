// SPDX-License-Identifier: Apache-2.0
//
// Path discovery of all pairs of this host, under a budget per switch: the switches at one distance behind one NIC get
// at most that many trace packets a second from us. Pairs that carry data come first: a job's peers are not to wait for
// those of all the cluster.
// Pure: packets go out through a function, time comes in. Thread rule: one thread (the agent's loop).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/icmp.h"

namespace cw::probe {

struct PathMonitorOptions {
  DiscoveryOptions discovery;  // each pair's seed is derived from discovery.seed
  double per_switch_pps = 10;  // budget of each switch
};

class PathMonitor {
 public:
  using SendFn = std::function<void(uint32_t pair, const TraceProbe& probe)>;
  using EventFn = std::function<void(uint32_t pair, const DiscoveryEvent& event)>;
  // event is called from within Tick only.
  PathMonitor(const PathMonitorOptions& options, SendFn send, EventFn event);

  // ports: the only ones that the pair's probes can have; none: as the options say.
  void AddPair(uint32_t pair, const PairKey& key, int ifindex, const std::vector<uint16_t>& preferred,
               std::vector<uint16_t> ports = {});
  void RemovePair(uint32_t pair);
  void SetActive(uint32_t pair, bool carries_data);
  void TracePort(uint32_t pair, uint16_t port);
  void ForgetPort(uint32_t pair, uint16_t port);
  void Rebuild(uint32_t pair);
  void Doubt(uint32_t pair, int64_t now_ns);

  void OnAnswer(const TraceAnswer& answer, int64_t now_ns);
  void Tick(int64_t now_ns);
  int64_t NextTickNs(int64_t now_ns) const;  // later than now; INT64_MAX: nothing to do

  const Discovery* Find(uint32_t pair) const;  // nullptr: no such pair
  uint64_t sent() const { return sent_; }
  uint64_t answers() const { return answers_; }

 private:
  struct Pair {
    PairKey key;
    int ifindex = 0;
    std::unique_ptr<Discovery> discovery;
    bool active = false;
  };
  struct Bucket {
    double tokens = 0;
    int64_t filled_ns = INT64_MIN;
  };

  void Poll(bool active, int64_t now_ns);
  bool Grant(int ifindex, int ttl, int64_t now_ns);

  PathMonitorOptions options_;
  SendFn send_;
  EventFn event_;
  std::map<uint32_t, Pair> pairs_;
  absl::flat_hash_map<PairKey, uint32_t> by_key_;
  std::map<std::pair<int, int>, Bucket> buckets_;  // by NIC and TTL
  uint32_t first_ = 0;  // pair that the next Tick begins with, so that each gets its share of the budget
  uint64_t sent_ = 0;
  uint64_t answers_ = 0;
};

}  // namespace cw::probe
