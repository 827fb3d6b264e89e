// SPDX-License-Identifier: Apache-2.0
//
// Path discovery of all pairs of this host, under a budget per switch: the switches at one distance behind one NIC get
// at most that many trace packets a second from us.
// Tables are built one after the other, so that the first need not wait for the last. Pairs
// that carry data come first: a job's peers are not to wait for those of all the cluster. Pairs of a NIC share what
// they learn (path_pool.h). Paths that are known are traced again (discovery.h), the longest overdue first; while
// tables are built they have a quarter of the budget at most, and pairs without data a quarter of the turns. Pure:
// packets go out through a function, time comes in. Thread rule: one thread (the agent's loop).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/icmp.h"
#include "userspace/probe/path_pool.h"

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
  void SetRate(double per_switch_pps) { options_.per_switch_pps = std::max(per_switch_pps, 0.01); }
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
  // A table is known and kept, waits to be built, or is built.
  enum class Stage { kKept, kWaiting, kBuilt };
  struct Pair {
    PairKey key;
    int ifindex = 0;
    std::unique_ptr<Discovery> discovery;
    bool active = false;
    Stage stage = Stage::kKept;
    int64_t place = 0;  // in its queue: when it is due; what waits or is built: in the order in which that began
  };
  struct Bucket {
    double tokens = 0, for_kept = 0;
    int64_t filled_ns = INT64_MIN;
  };
  using Queue = std::set<std::pair<int64_t, uint32_t>>;  // Pair::place and number
  struct Nic {
    std::map<int, Bucket> buckets;        // by TTL
    Queue kept[2], waiting[2], built[2];  // without and with data
    PathPool pool;
    int turn = 0;
  };

  Queue& QueueOf(Nic& nic, const Pair& pair);
  void Take(uint32_t number, Pair& pair);  // out of its queue
  void Place(uint32_t number, Pair& pair);
  template <typename Change>
  void With(uint32_t number, Change&& change);
  void Keep(Nic& nic, bool active, int64_t now_ns);
  void Build(Nic& nic, bool active, int64_t now_ns);
  bool Poll(Nic& nic, uint32_t number, Pair& pair, int64_t now_ns);
  bool Grant(Nic& nic, int ttl, bool for_kept, int64_t now_ns);
  void Learn(const Pair& pair, int64_t now_ns);
  void ForgetWhatIsShared(const Pair& pair);
  void TellTheGroup(const Pair& pair, const DiscoveryEvent& event, int64_t now_ns);

  PathMonitorOptions options_;
  SendFn send_;
  EventFn event_;
  std::map<uint32_t, Pair> pairs_;
  absl::flat_hash_map<PairKey, uint32_t> by_key_;
  std::map<int, Nic> nics_;     // by interface; Discovery keeps its pool's address
  std::set<uint32_t> changed_;  // pairs that may have events
  int64_t last_place_ = 0;
  uint64_t sent_ = 0;
  uint64_t answers_ = 0;
};

}  // namespace cw::probe
