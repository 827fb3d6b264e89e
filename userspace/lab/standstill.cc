// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/standstill.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "userspace/lab/monotonic.h"

namespace cw::lab {

void Standstills::Close() {
  if (present_.end_ns - present_.begin_ns >= kLeastNs) past_.push_back(present_);
}

void Standstills::Look(int64_t now_ns, uint64_t value) {
  if (looked_ && value == value_) {
    present_.end_ns = now_ns;
    return;
  }
  if (looked_) Close();
  while (!past_.empty() && past_.front().end_ns < now_ns - kMemoryNs) past_.pop_front();
  looked_ = true;
  value_ = value;
  present_ = {now_ns, now_ns};
}

double Standstills::LongestMs(int64_t from_ns, int64_t to_ns) const {
  std::vector<MachineStall> all(past_.begin(), past_.end());
  if (present_.end_ns - present_.begin_ns >= kLeastNs) all.push_back(present_);
  return LongestStallMs(all, from_ns, to_ns);
}

std::unique_ptr<LinkStills> LinkStills::Start(const Fabric& fabric, absl::Duration period) {
  std::unique_ptr<LinkStills> stills(new LinkStills(fabric));
  for (const LinkDirection& link : fabric.LinkDirections()) {
    if (link.tier == LinkDirection::Tier::kSpine) stills->links_.push_back(link);
  }
  stills->stills_.resize(stills->links_.size());
  stills->thread_ = std::thread([self = stills.get(), period] {
    const sched_param above_others{.sched_priority = 1};  // without the right to it, less is proved
    (void)pthread_setschedparam(pthread_self(), SCHED_FIFO, &above_others);
    while (!self->stop_.load()) {
      self->Look();
      absl::SleepFor(period);
    }
  });
  return stills;
}

LinkStills::~LinkStills() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void LinkStills::Look() {
  const int64_t now_ns = MonotonicNs();
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < links_.size(); ++i) {
    const auto counted = fabric_.Link(links_[i]);
    if (counted.ok()) stills_[i].Look(now_ns, counted->carried_packets);
  }
}

double LinkStills::LongestMs(const LinkDirection& link, int64_t from_ns, int64_t to_ns) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] == link) return stills_[i].LongestMs(from_ns, to_ns);
  }
  return 0;
}

}  // namespace cw::lab
