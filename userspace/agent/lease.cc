// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/lease.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "maps/views.h"

namespace cw::agent {
namespace {

using maps::CtlView;
using maps::PairsView;

constexpr absl::Duration kBlindAfter = absl::Milliseconds(250);
constexpr absl::Duration kMostLate = absl::Milliseconds(500);
constexpr absl::Duration kMostStretched = absl::Seconds(1);
constexpr absl::Duration kStuckAfter = absl::Seconds(2);
// An RDMA stack in software has kept a machine of one processor to itself for 50 s.
constexpr absl::Duration kMostStuck = absl::Seconds(60);
constexpr int kFewProcessors = 2;
constexpr double kForgotten = 1.0 / 256;  // of a prober's lateness, in a second

}  // namespace

Lease::Lease(cw_ctl& ctl, Ticks ticks, const Clock& monotonic)
    : ctl_(ctl), ticks_(std::move(ticks)), monotonic_(monotonic) {}

void Lease::TellOfFormer(absl::Duration lease, const Flows& flows, EventSink& events) {
  const uint64_t until = CtlView::Load(ctl_.lease_jiffies);
  const int64_t over_ns = until == 0 ? 0 : monotonic_.NowNs() - ticks_.ns(until);
  if (over_ns <= 0) return;
  found_over_s_ = static_cast<double>(over_ns) / 1e9;
  events.Log(
      {.type = "agent",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrFormat(
           "the lease of the agent before ran out %.1f s ago: flows went back to their native ports", found_over_s_),
       .evidence = {{"flows_still_steered", absl::StrCat(flows.steered())},
                    {"flows_back_since_loaded", absl::StrCat(flows.went_home())},
                    {"lease_s", absl::StrCat(absl::ToDoubleSeconds(lease))}}});
}

void Lease::SetBlindAfter(absl::Duration idle_interval) {
  idle_interval_ = idle_interval;
  SetBlindJiffies();
}

void Lease::SetPresent(bool present, int processors) {
  present_ = present;
  stuck_after_ = processors <= kFewProcessors ? kMostStuck : kStuckAfter;
  SetBlindJiffies();
}

void Lease::SawProber(absl::Duration lateness, absl::Duration interval) {
  late_ = std::max(std::min(lateness, kMostLate), late_ * (1 - kForgotten));
  stuck_after_ = std::max(stuck_after_, std::min(2 * lateness, kMostStuck));
  stretched_ = std::max(std::min(interval, kMostStretched), stretched_ * (1 - kForgotten));
  SetBlindJiffies();
}

void Lease::ProberSlows(absl::Duration interval) {
  stretched_ = std::max(std::min(interval, kMostStretched), stretched_);
  SetBlindJiffies();
}

void Lease::SetBlindJiffies() {
  CtlView::Store(ctl_.blind_jiffies, Jiffies(std::max({kBlindAfter, 3 * idle_interval_, 3 * stretched_, 2 * late_})));
  const bool seldom = std::max(idle_interval_, stretched_) >= kMostStretched;
  CtlView::Store(ctl_.stuck_jiffies, present_ && !seldom ? Jiffies(stuck_after_) : uint16_t{0});
}

uint16_t Lease::Jiffies(absl::Duration duration) const {
  const int64_t now_ns = monotonic_.NowNs();
  const uint64_t jiffies = ticks_.at(now_ns + absl::ToInt64Nanoseconds(duration)) - ticks_.at(now_ns);
  return static_cast<uint16_t>(std::clamp<uint64_t>(jiffies, 1, UINT16_MAX));
}

void Lease::Renew(absl::Duration lease) {
  const uint64_t until =
      lease == absl::ZeroDuration() ? 0 : ticks_.at(monotonic_.NowNs() + absl::ToInt64Nanoseconds(lease));
  CtlView::Store(ctl_.lease_jiffies, until);
}

void Lease::AwaitSuccessor(cw_pair& pair) const {
  const int64_t now_ns = monotonic_.NowNs();
  const uint64_t now = ticks_.at(now_ns), begun = PairsView::Load(pair.round_jiffies);
  const auto alone = std::max(CtlView::Load(ctl_.blind_jiffies), CtlView::Load(ctl_.stuck_jiffies));
  if (begun == 0 || now > begun + alone) return;
  PairsView::Store(pair.round_jiffies, ticks_.at(now_ns + absl::ToInt64Nanoseconds(kGrace)));
}

double Lease::LeftS() const {
  const uint64_t until = CtlView::Load(ctl_.lease_jiffies);
  return until == 0 ? 0 : static_cast<double>(ticks_.ns(until) - monotonic_.NowNs()) / 1e9;
}

}  // namespace cw::agent
