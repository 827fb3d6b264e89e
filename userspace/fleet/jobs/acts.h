// SPDX-License-Identifier: Apache-2.0
//
// What agents did about a finding: which flows left the ways that cross it, and which came back, by the events of their
// hosts. Pure. Bounded, whatever hosts tell: of each the oldest go first. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/findings/picture.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

// A flow took another way, or went back to the one that it had left.
struct FlowAct {
  std::string host, peer, flow;
  bool back = false;
  uint16_t port_before = 0;  // source port of the way that it left; 0: its native one, or not known
  int64_t time_ns = 0;
  bool dry = false;  // it would have been done
};

// The way that it left.
struct FlowWay {
  std::vector<Addr> ports;  // where its links end, the peer's NIC among them
  std::vector<Addr> nics;   // at both ends
};

class ActBook {
 public:
  static constexpr size_t kMost = 200'000, kMostOfHost = 512, kAlways = 8, kMostFlows = 10'000;
  static constexpr size_t kMostLooks = 1'000'000;               // acts × findings between two calls of Age
  static constexpr absl::Duration kBefore = absl::Seconds(10);  // flows leave before the finding is made
  static constexpr absl::Duration kLately = absl::Minutes(15);
  static constexpr absl::Duration kComesBack = absl::Minutes(3);  // a finding that was not asked about for so long
  static constexpr absl::Duration kTellAgain = absl::Minutes(1);

  using WayOf = absl::FunctionRef<FlowWay(const FlowAct&)>;  // asked once for each act

  void Take(const HostEvent& event);  // what is no act is passed over
  void Age(int64_t now_ns);
  // Takes in the acts that are new since it was asked about this finding last. Whether there is news, which is told
  // once a minute at most.
  bool Look(const Finding& finding, const Topology& topology, int64_t now_ns, WayOf way_of);
  std::vector<std::string> Did(uint64_t finding) const;  // sentences

 private:
  using Flow = std::pair<std::string, std::string>;  // host, flow
  struct Record {
    uint64_t number = 0;
    FlowAct act;
    std::optional<FlowWay> way;
    bool dropped = false;
  };
  struct Done {
    uint64_t through = 0;  // number of the last act that was looked at
    std::set<Flow> moved, back, dry;
    int64_t first_ns = 0, last_ns = 0, asked_ns = 0, told_ns = 0;
    bool news = false;
  };
  struct Place {  // what a finding accuses
    absl::flat_hash_set<Addr> ports, nics;
    std::string host;
  };
  static Place PlaceOf(const Finding& finding, const Topology& topology);
  static bool Left(const Record& record, const Place& place);
  bool Count(Done& done, const FlowAct& act) const;

  std::deque<Record> acts_;                                        // by number
  absl::flat_hash_map<std::string, std::deque<Record*>> of_host_;  // the oldest first
  uint64_t number_ = 0;
  size_t looks_ = 0;
  std::map<uint64_t, Done> done_;
};

}  // namespace cw::fleet
