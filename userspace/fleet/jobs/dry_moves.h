// SPDX-License-Identifier: Apache-2.0
//
// What one host's agent decided about its flows and did not do, because its mode is observe, by its events; and how
// much of a wait acting would have saved. While such a decision stands, a flow on a path that is dead or loses packets
// waits for nothing else; one that shares a link would have sent `gain` times as fast. It stands until its path is said
// to be good again, or the flow was moved, or for as long as the agent would have said it again.
// Pure. Bounded: of each flow and path the newest decisions count. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::fleet {

class DryMoves {
 public:
  static constexpr size_t kMostOfOne = 1000, kMostNames = 10'000, kMost = 100'000;
  static constexpr absl::Duration kDeadHolds = absl::Seconds(30);  // queue pairs give up, or go on
  static constexpr absl::Duration kLossyHolds = absl::Hours(1);
  static constexpr absl::Duration kUnevenHolds = absl::Seconds(15);  // agents repeat it each 10 s

  // What an event says of that.
  struct Word {
    enum class Kind : uint8_t { kDead, kLossy, kUneven, kMoved, kRevived, kLossOver };
    int64_t time_ns = 0;
    Kind kind = Kind::kDead;
    double share = 1;        // of the time that acting would have saved
    std::string flow, path;  // "" = none, or not known
  };
  static std::optional<Word> Read(const cwfabric::v1::Event& event, int64_t time_ns);  // nullopt: nothing

  struct Flow {
    std::string id, pair;  // as CollectiveQp
    int slot = -1;         // its path; -1: not known
  };

  void Take(Word word);  // by time
  // ns of a wait from begin_ns to end_ns.
  double SavedNs(const Flow& flow, int64_t begin_ns, int64_t end_ns) const;
  bool whole() const { return whole_; }  // nothing was left out for want of room

 private:
  struct Decision {
    int64_t from_ns = 0, until_ns = 0;
    double share = 1;
    std::string path;
  };
  void Add(const std::string& about, Decision decision);
  void End(const std::string& about, int64_t time_ns);
  int64_t EndOf(const std::string& about, int64_t from_ns) const;  // INT64_MAX: none
  int64_t UntilOf(const std::string& about, const Decision& one) const;
  double SavedOf(const std::string& about, int64_t begin_ns, int64_t end_ns) const;

  std::map<std::string, std::deque<Decision>> decisions_;  // by flow, path without data, or its losses
  std::map<std::string, std::deque<int64_t>> ends_;        // of flows and paths; ascending
  size_t kept_ = 0;
  bool whole_ = true;
};

}  // namespace cw::fleet
