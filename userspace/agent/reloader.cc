// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/reloader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/config/change.h"

namespace cw::agent {
namespace {

telemetry::Event Alert(const char* type, std::string text) {
  telemetry::Event event{.type = type};
  event.severity = telemetry::Severity::kAlert;
  event.text = std::move(text);
  return event;
}

// A rail is a place among the [[nic]] tables, and those of the file are taken at the next start only.
absl::Status CheckRails(const config::Config& running, const config::Config& merged, const config::Config& fresh) {
  const bool by_rail = std::any_of(merged.scopes.begin(), merged.scopes.end(), [](const auto& s) { return s.rail; });
  const bool same = std::equal(running.nics.begin(), running.nics.end(), fresh.nics.begin(), fresh.nics.end(),
                               [](const auto& a, const auto& b) { return a.name == b.name; });
  if (!by_rail || same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a [[scope]] names a rail, and the [[nic]] tables are others than those that run: restart the agent to take "
      "both");
}

}  // namespace

absl::StatusOr<config::Config> Reloader::Take(const config::Config& fresh) {
  absl::StatusOr<Checked> checked = Check(fresh);
  if (!checked.ok()) {
    events_.Log(Alert("config", absl::StrCat("nothing is changed: ", std::string(checked.status().message()))));
    return checked.status();
  }
  const std::vector<config::Change> changes = config::Changes(running_, fresh);
  const auto left = TakeChecked(*std::move(checked));
  in_force_.Reloaded(running_, changes, monotonic_.NowNs());
  for (const auto& [table, why] : left) in_force_.NotTaken(table, why);
  return running_;
}

// All that may be refused.
absl::StatusOr<Reloader::Checked> Reloader::Check(const config::Config& fresh) const {
  absl::StatusOr<config::Config> merged = config::MergeLive(running_, fresh);
  if (!merged.ok()) return merged.status();
  absl::StatusOr<probe::KeyRing> ring = keys_.Check(merged->keys);
  if (!ring.ok()) {
    events_.Log(Alert("keys", absl::StrCat("keys stay as they were: ", std::string(ring.status().message()))));
    return ring.status();
  }
  if (absl::Status status = CheckRails(running_, *merged, fresh); !status.ok()) return status;
  absl::StatusOr<PeerPlan> plan = pairs_.Plan(*merged);
  if (!plan.ok()) return plan.status();
  if (absl::Status status = CheckPeers(*merged, *plan); !status.ok()) return status;
  return Checked{.config = *std::move(merged), .keys = *std::move(ring), .peers = *std::move(plan)};
}

absl::Status Reloader::CheckPeers(const config::Config& merged, const PeerPlan& plan) const {
  if (!plan.own_name.empty() && plan.own_name != vitals_.host_name) {
    return absl::FailedPreconditionError(absl::StrCat("the [[peer]] tables now call this host ", plan.own_name,
                                                      ", and it runs as ", vitals_.host_name, "; restart the agent"));
  }
  if (plan.specs.size() <= static_cast<size_t>(merged.limits.max_pairs)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(plan.specs.size(), " pairs of NICs, and limits.max_pairs is ",
                                                   merged.limits.max_pairs, "; raise it and restart the agent"));
}

std::vector<std::pair<std::string, absl::Status>> Reloader::TakeChecked(Checked checked) {
  std::vector<std::pair<std::string, absl::Status>> left;
  const config::Config before = std::exchange(running_, std::move(checked.config));
  if (absl::Status status = keys_.Take(std::move(checked.keys), keys_changed_); !status.ok())
    left.emplace_back("keys", std::move(status));
  if (absl::Status status = pairs_.Take(std::move(checked.peers)); !status.ok())
    left.emplace_back("peer", std::move(status));
  for (const Taker& take : takers_) take(before, running_);
  return left;
}

}  // namespace cw::agent
