// SPDX-License-Identifier: Apache-2.0
//
// What one host's agent decided about its flows and did not do, because its mode is observe, by its events; and how
// much of a wait acting would have saved. A flow that stands on a dead path, or one that loses packets, would not have
// waited from the decision on. One that shares a link would have sent `gain` times as fast. A decision stands until its
// path is said to be good again, or the flow was moved, or for as long as an agent would have said so again.
// Pure. Bounded: of each flow and path the newest decisions count. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::fleet {

class DryMoves {
 public:
  static constexpr size_t kMostOfOne = 64, kMostNames = 10'000;
  static constexpr absl::Duration kDeadHolds = absl::Seconds(30);  // queue pairs give up, or go on
  static constexpr absl::Duration kLossyHolds = absl::Hours(1);
  static constexpr absl::Duration kUnevenHolds = absl::Seconds(15);  // agents repeat it each 10 s

  struct Flow {
    std::string id, peer;
    int slot = -1;  // its path; -1: not known
  };

  // By time. What is no decision is passed over.
  void Take(const cwfabric::v1::Event& event, int64_t time_ns);
  // ns of a wait from begin_ns to end_ns.
  double SavedNs(const Flow& flow, int64_t begin_ns, int64_t end_ns) const;
  bool empty() const { return decisions_.empty(); }

 private:
  struct Decision {
    int64_t from_ns = 0, until_ns = 0;
    double share = 1;  // of the time from then on that acting would have saved
    std::string path;
  };
  void Add(const std::string& about, Decision decision);
  void End(const std::string& about, int64_t time_ns);
  int64_t EndOf(const std::string& about, int64_t from_ns) const;  // INT64_MAX: none
  double SavedOf(const std::string& about, int64_t begin_ns, int64_t end_ns) const;

  // By flow's id, or path: peer and slot.
  std::map<std::string, std::deque<Decision>> decisions_;
  std::map<std::string, std::deque<int64_t>> ends_;  // when a path was good again, or a flow was moved; ascending
};

}  // namespace cw::fleet
