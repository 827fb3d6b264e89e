// SPDX-License-Identifier: Apache-2.0
// Who takes what of a configuration that is read again. A part with rules or knobs has a line here.
#include <algorithm>

#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/pair_keeper.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/reloader.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/scopes.h"
#include "userspace/control/contention.h"
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

}  // namespace

void Agent::OpenReloader() {
  using config::Config;
  const auto rules = [this](const Config&, const Config& now) {
    control::SetRules(ContentionRulesOf(now.steering), *contention_);
    causes_->SetRules(now.steering.find_causes, CauseRulesOf(now.steering));
    for (auto& [index, pair] : pairs_)
      if (pair->loss != nullptr) pair->loss->SetLimit(now.steering.loss_limit);
    returns_->SetStep(now.steering.return_step);
    owner_returns_->SetStep(now.steering.return_step);
    breaker_->SetHold(now.steering.breaker_hold);
    engine_->SetMissLimit(static_cast<uint32_t>(now.liveness.misses));
    jobs_->SetOptions(ProfileOptionsOf(now.profile));
    lease_->Renew(now.steering.lease);
  };
  const auto allowed = [this](const Config& before, const Config& now) {
    scopes_->Take(now.scopes);
    scopes_->Step(MonotonicNs());  // the programs know what is held before they may do more
    modes_->TakeConfigured(AllowedBy(before), AllowedBy(now));
    scopes_->Step(MonotonicNs());
  };
  reloader_ = std::make_unique<Reloader>(
      options_.config, keys_, *pair_keeper_, config_in_force_, vitals_, monotonic_, journal_,
      [this] { return engine_->KeysChanged(); },
      std::vector<Reloader::Taker>{
          [this](const Config&, const Config& now) { control_->WriteKnobs(now); },
          rules,
          [this](const Config& before, const Config& now) {
            TakePace(before.probe, now.probe, *lease_, *engine_, *loop_);
          },
          allowed,
      });
}

}  // namespace cw::agent
