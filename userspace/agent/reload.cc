// SPDX-License-Identifier: Apache-2.0
// SIGHUP: the configuration is read again. What a running agent can take it takes, all of it or nothing; what it cannot
// is named, and waits for the next start.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/scopes.h"
#include "userspace/config/change.h"
#include "userspace/control/contention_rules.h"
#include "userspace/profile/profiles.h"

namespace cw::agent {
namespace {

// now: lives on, and is what is in force when the time comes. A pair that is not due yet is not blind: the longer of
// the two idle intervals counts until all are probed at the new.
void TakePace(const config::ProbeConfig& before, const config::ProbeConfig& now, Lease& lease, probe::Engine& engine,
              Timers& timers) {
  const bool same = before.active_interval == now.active_interval && before.idle_interval == now.idle_interval &&
                    before.clock_interval == now.clock_interval && before.budget_pps == now.budget_pps &&
                    before.discovery_pps == now.discovery_pps;
  if (same) return;
  lease.SetBlindAfter(std::max(before.idle_interval, now.idle_interval));
  engine.SetPace(CadenceOf(now), HalfDeadFactor(now.active_interval), static_cast<double>(now.discovery_pps));
  if (now.idle_interval >= before.idle_interval) return;
  timers.After(before.idle_interval, [&lease, &now] { lease.SetBlindAfter(now.idle_interval); });
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

absl::StatusOr<config::Config> Agent::Reload(const config::Config& fresh) {
  return loop_->Call<config::Config>([this, fresh] {
    const auto alert = [this](absl::string_view what, const absl::Status& status) {
      Log({.type = "config",
           .severity = telemetry::Severity::kAlert,
           .text = absl::StrCat(what, std::string(status.message()))});
    };
    absl::StatusOr<Fresh> checked = CheckConfig(fresh);
    if (!checked.ok()) {
      alert("nothing is changed: ", checked.status());
      return absl::StatusOr<config::Config>(checked.status());
    }
    if (absl::Status status = TakeConfig(*std::move(checked)); !status.ok()) {
      alert("the configuration is taken in part, restart the agent: ", status);
    }
    return absl::StatusOr<config::Config>(options_.config);
  });
}

// All that may be refused.
absl::StatusOr<Agent::Fresh> Agent::CheckConfig(const config::Config& fresh) {
  absl::StatusOr<config::Config> merged = config::MergeLive(options_.config, fresh);
  if (!merged.ok()) return merged.status();
  absl::StatusOr<probe::KeyRing> ring = keys_.Check(merged->keys);
  if (!ring.ok()) {
    Log({.type = "keys",
         .severity = telemetry::Severity::kAlert,
         .text = absl::StrCat("keys stay as they were: ", std::string(ring.status().message()))});
    return ring.status();
  }
  if (absl::Status status = CheckRails(options_.config, *merged, fresh); !status.ok()) return status;
  absl::StatusOr<PeerPlan> plan = PlanPeers(*merged, ProbedNics());
  if (!plan.ok()) return plan.status();
  if (!plan->own_name.empty() && plan->own_name != vitals_.host_name) {
    return absl::FailedPreconditionError(absl::StrCat("the [[peer]] tables now call this host ", plan->own_name,
                                                      ", and it runs as ", vitals_.host_name, "; restart the agent"));
  }
  if (plan->specs.size() > static_cast<size_t>(merged->limits.max_pairs)) {
    return absl::ResourceExhaustedError(absl::StrCat(plan->specs.size(), " pairs of NICs, and limits.max_pairs is ",
                                                     merged->limits.max_pairs, "; raise it and restart the agent"));
  }
  return Fresh{.config = *std::move(merged),
               .keys = *std::move(ring),
               .peers = *std::move(plan),
               .changes = config::Changes(options_.config, fresh)};
}

absl::Status Agent::TakeConfig(Fresh fresh) {
  const Allowed before = AllowedBy(options_.config);
  const config::ProbeConfig probed = options_.config.probe;
  options_.config = std::move(fresh.config);
  if (absl::Status status = keys_.Take(std::move(fresh.keys), [this] { return engine_->KeysChanged(); }); !status.ok())
    return status;
  if (absl::Status status = TakePeers(std::move(fresh.peers)); !status.ok()) return status;
  WriteKnobs();
  TakeRules(probed);
  scopes_->Take(options_.config.scopes);
  scopes_->Step(MonotonicNs());  // the programs know what is held before they may do more
  modes_->TakeConfigured(before, AllowedBy(options_.config));
  scopes_->Step(MonotonicNs());
  config_in_force_.Reloaded(options_.config, fresh.changes, MonotonicNs());
  return absl::OkStatus();
}

void Agent::TakeRules(const config::ProbeConfig& probed) {
  const config::SteeringConfig& steering = options_.config.steering;
  control::SetRules(ContentionRulesOf(steering), *contention_);
  causes_->SetRules(steering.find_causes, CauseRulesOf(steering));
  returns_->SetStep(steering.return_step);
  owner_returns_->SetStep(steering.return_step);
  breaker_->SetHold(steering.breaker_hold);
  engine_->SetMissLimit(static_cast<uint32_t>(options_.config.liveness.misses));
  jobs_->SetOptions(ProfileOptionsOf(options_.config.profile));
  lease_->Renew(options_.config.steering.lease);
  TakePace(probed, options_.config.probe, *lease_, *engine_, *loop_);
}

}  // namespace cw::agent
