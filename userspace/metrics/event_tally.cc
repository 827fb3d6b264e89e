// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/event_tally.h"

#include <algorithm>

namespace cw::metrics {
namespace {

constexpr absl::string_view kTypes[] = {"agent", "breaker", "cause",  "clock", "decision", "drain", "fabric",
                                        "flow",  "job",     "link",   "mode",  "move",     "nic",   "path",
                                        "place", "repair",  "return", "steer", "trial",    "other"};
constexpr absl::string_view kSeverities[] = {"info", "notice", "alert"};

std::string TypeOf(const v1::Event& event) {
  const bool known = std::find(std::begin(kTypes), std::end(kTypes), event.type()) != std::end(kTypes);
  return known ? event.type() : "other";
}

std::string SeverityOf(const v1::Event& event) {
  switch (event.severity()) {
    case v1::SEVERITY_ALERT:
      return "alert";
    case v1::SEVERITY_NOTICE:
      return "notice";
    default:
      return "info";
  }
}

}  // namespace

absl::Span<const absl::string_view> EventTypes() { return kTypes; }

EventTally::EventTally() {
  for (const absl::string_view type : kTypes) {
    for (const absl::string_view severity : kSeverities)
      counts_.by_kind[{std::string(type), std::string(severity)}] = 0;
    counts_.suppressed[std::string(type)] = 0;
  }
}

void EventTally::Add(const std::vector<v1::Event>& events) {
  const std::lock_guard lock(mutex_);
  for (const v1::Event& event : events) {
    if (event.seq() > last_seq_ + 1) counts_.lost += event.seq() - last_seq_ - 1;
    last_seq_ = std::max(last_seq_, event.seq());
    ++counts_.by_kind[{TypeOf(event), SeverityOf(event)}];
    if (event.dry()) ++counts_.suppressed[TypeOf(event)];
  }
}

uint64_t EventTally::last_seq() const {
  const std::lock_guard lock(mutex_);
  return last_seq_;
}

EventCounts EventTally::Counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace cw::metrics
