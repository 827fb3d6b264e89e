// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/event_tally.h"

#include <algorithm>

#include "userspace/model/event_types.h"

namespace cw::metrics {
namespace {

constexpr absl::string_view kOther = "other";
constexpr absl::string_view kSeverities[] = {"info", "notice", "alert"};

std::string TypeOf(const v1::Event& event) {
  const bool known = std::find(kEventTypes.begin(), kEventTypes.end(), event.type()) != kEventTypes.end();
  return known ? event.type() : std::string(kOther);
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

absl::Span<const absl::string_view> EventTypes() {
  static const auto& types = *new std::vector<absl::string_view>([] {
    std::vector<absl::string_view> all(kEventTypes.begin(), kEventTypes.end());
    all.push_back(kOther);
    return all;
  }());
  return types;
}

EventTally::EventTally() {
  for (const absl::string_view type : EventTypes()) {
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
