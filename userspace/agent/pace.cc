// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/pace.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cw::agent {
namespace {

constexpr int kStretches[] = {1, 2, 5, Pace::kMostStretch};  // few, so that timers share wake-ups

int Least(double wanted) {
  return *std::find_if(std::begin(kStretches), std::end(kStretches) - 1, [&](int each) { return each >= wanted; });
}

}  // namespace

absl::Duration Pace::Stretched(absl::Duration period, int stretch) {
  return std::min(period * stretch, std::max(period, kSeldom));
}

int Pace::slowed() const { return Least(1 / allowance_.factor()); }

void Pace::Begin(int64_t now_ns, Options options) {
  busy_ns_ = now_ns;
  options_ = std::move(options);
  allowance_ = probe::CpuAllowance(options_.most_cpu, 1.0 / kMostStretch);
}

void Pace::Hurry(int64_t now_ns) {
  NeedsProbes(now_ns);
  busy_ = true;
  Update();
}

void Pace::Look(const FlowBook& flows, int64_t now_ns) {
  if (std::any_of(flows.sent.begin(), flows.sent.end(), [](const auto& f) { return f.second.window_packets > 0; }))
    NeedsProbes(now_ns);
  busy_ = now_ns - busy_ns_ < kQuietAfterNs;
  if (allowance_.Due(now_ns)) allowance_.Look(now_ns, options_.cpu_ns());
  Update();
}

void Pace::Update() {
  const int stretch = busy_ ? slowed() : kMostStretch;
  if (stretch == stretch_) return;
  stretch_ = stretch;
  if (options_.set) options_.set(stretch);
}

}  // namespace cw::agent
