// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/rules_of_config.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "userspace/model/cpu_list.h"

namespace cw::agent {

Mode ModelMode(config::Mode mode) {
  switch (mode) {
    case config::Mode::kProtect:
      return Mode::kProtect;
    case config::Mode::kOptimize:
      return Mode::kOptimize;
    case config::Mode::kObserve:
      break;
  }
  return Mode::kObserve;
}

AllowOverrides Overrides(const config::AllowConfig& allow) {
  const auto of = [](config::AllowSetting setting) -> std::optional<Allow> {
    switch (setting) {
      case config::AllowSetting::kOff:
        return Allow::kOff;
      case config::AllowSetting::kObserve:
        return Allow::kObserve;
      case config::AllowSetting::kAct:
        return Allow::kAct;
      case config::AllowSetting::kMode:
        break;
    }
    return std::nullopt;
  };
  return {of(allow.failover), of(allow.loss), of(allow.tails), of(allow.balance), of(allow.place), of(allow.nic)};
}

Allowed AllowedBy(const config::Config& config) {
  return cw::Apply(ModelMode(config.mode), Overrides(config.steering.allow));
}

control::ContentionRules ContentionRulesOf(const config::SteeringConfig& steering) {
  control::ContentionRules rules;
  rules.queue_over_base = steering.queueing_factor;
  rules.queue_floor_ns = absl::ToDoubleNanoseconds(steering.queueing_floor);
  rules.better_than = steering.target_factor;
  rules.max_moved_share = steering.moves_per_second;
  return rules;
}

control::CauseRules CauseRulesOf(const config::SteeringConfig& steering) {
  control::CauseRules rules;
  rules.queue_over_base = steering.queueing_factor;
  rules.queue_floor_ns = absl::ToDoubleNanoseconds(steering.queueing_floor);
  return rules;
}

probe::CadenceOptions CadenceOf(const config::ProbeConfig& probe) {
  return {.active_interval_ns = absl::ToInt64Nanoseconds(probe.active_interval),
          .idle_interval_ns = absl::ToInt64Nanoseconds(probe.idle_interval),
          .clock_interval_ns = absl::ToInt64Nanoseconds(probe.clock_interval),
          .budget_pps = static_cast<double>(probe.budget_pps)};
}

namespace {
int OnlineProcessors() { return static_cast<int>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN))); }
}  // namespace

double CpuShare(const config::ProbeConfig& probe) { return probe.cpu_percent / 100.0 * OnlineProcessors(); }

int ProcessorsOf(const config::ProbeConfig& probe) {
  const auto named = ParseCpuList(probe.cpus);
  if (!named.ok() || named->empty()) return OnlineProcessors();
  return std::min(static_cast<int>(named->size()), OnlineProcessors());  // the list may name more than there are
}

// With three misses 15 ms at least.
uint32_t HalfDeadFactor(absl::Duration active_interval) {
  constexpr uint32_t kLeast = 5;
  return std::max(kLeast, static_cast<uint32_t>(absl::Milliseconds(kLeast) / active_interval));
}

profile::ProfileOptions ProfileOptionsOf(const config::ProfileConfig& profile) {
  return {.stall_ns = absl::ToInt64Nanoseconds(profile.stall), .slow_factor = profile.slow_factor};
}

}  // namespace cw::agent
