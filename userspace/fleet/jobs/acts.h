// SPDX-License-Identifier: Apache-2.0
//
// What agents did about a finding: which flows left the ways that cross it, and which came back, by the events of their
// hosts. Pure. Bounded, whatever hosts tell: the oldest go first. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/findings/picture.h"

namespace cw::fleet {

// A flow took another way, or went back to the one that it had left.
struct FlowAct {
  std::string host, peer, flow;
  uint16_t port_before = 0;  // source port of the way that it left; 0: it went back
  int64_t time_ns = 0;
  bool dry = false;  // it would have been done
};

class ActBook {
 public:
  static constexpr size_t kMost = 100'000, kMostOfHost = 512, kMostFlows = 10'000;
  static constexpr absl::Duration kBefore = absl::Seconds(10);  // flows leave before the finding is made
  static constexpr absl::Duration kLately = absl::Minutes(15);

  void Take(const HostEvent& event);  // what is no act is passed over
  void Age(int64_t now_ns);
  // Acts that are new since it was asked about this finding last. `crosses`: whether the way that was left crosses it.
  // Whether there is news.
  bool Look(const Finding& finding, absl::FunctionRef<bool(const FlowAct&)> crosses);
  std::vector<std::string> Did(uint64_t finding) const;  // sentences
  void Forget(const std::set<uint64_t>& but_these);      // findings

 private:
  using Flow = std::pair<std::string, std::string>;  // host, flow
  struct Record {
    uint64_t number = 0;
    FlowAct act;
  };
  struct Done {
    uint64_t through = 0;  // number of the last act that was looked at
    std::set<Flow> moved, back, dry;
    int64_t first_ns = 0, last_ns = 0;
  };
  bool Count(Done& done, const FlowAct& act, absl::FunctionRef<bool(const FlowAct&)> crosses) const;

  std::deque<Record> acts_;                // by number
  std::map<std::string, size_t> of_host_;  // how many
  uint64_t number_ = 0;
  std::map<uint64_t, Done> done_;
};

}  // namespace cw::fleet
