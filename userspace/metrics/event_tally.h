// SPDX-License-Identifier: Apache-2.0
//
// Counts the agent's events by kind, from the same stream that cwctl events reads: verdicts, moves and what was only
// observed become counters without a word from where they are made. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::metrics {

namespace v1 = ::cwfabric::v1;

struct EventCounts {
  std::map<std::pair<std::string, std::string>, uint64_t> by_kind;  // {type, severity}; all kinds, zero or not
  std::map<std::string, uint64_t> suppressed;                       // by type: what the mode kept from being done
  uint64_t lost = 0;  // overwritten in the agent's memory before they were counted
};

// Every type of event; others count as "other", so that a series per type stays bounded.
absl::Span<const absl::string_view> EventTypes();

class EventTally {
 public:
  EventTally();
  void Add(const std::vector<v1::Event>& events);
  uint64_t last_seq() const;
  EventCounts Counts() const;

 private:
  mutable std::mutex mutex_;
  EventCounts counts_;
  uint64_t last_seq_ = 0;
};

}  // namespace cw::metrics
