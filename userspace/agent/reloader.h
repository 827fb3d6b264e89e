// SPDX-License-Identifier: Apache-2.0
//
// The configuration, read again while the agent runs (SIGHUP). What can change takes effect at once: all of it, or
// nothing where anything in the file is wrong; what cannot is named, and waits for the next start. Thread rule: the
// agent's loop.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/config_in_force.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/group_keys.h"
#include "userspace/agent/pair_keeper.h"
#include "userspace/agent/vitals.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class Reloader {
 public:
  // Takes its part of what is in force from now on. It cannot refuse: all that may be wrong is checked before.
  using Taker = std::function<void(const config::Config& before, const config::Config& now)>;

  // running: the configuration in force, which changes. Takers are called in this order, behind keys and pairs.
  // keys_changed: whoever signs and checks with them. All of them outlive it.
  Reloader(config::Config& running, GroupKeys& keys, PairKeeper& pairs, ConfigInForce& in_force, const Vitals& vitals,
           const Clock& monotonic, EventSink& events, std::function<absl::Status()> keys_changed,
           std::vector<Taker> takers)
      : running_(running),
        keys_(keys),
        pairs_(pairs),
        in_force_(in_force),
        vitals_(vitals),
        monotonic_(monotonic),
        events_(events),
        keys_changed_(std::move(keys_changed)),
        takers_(std::move(takers)) {}

  // What is in force now. An error: nothing was changed, and an event says why.
  absl::StatusOr<config::Config> Take(const config::Config& fresh);

 private:
  struct Checked {
    config::Config config;  // that will be in force
    probe::KeyRing keys;
    PeerPlan peers;
  };
  absl::StatusOr<Checked> Check(const config::Config& fresh) const;
  absl::Status CheckPeers(const config::Config& merged, const PeerPlan& plan) const;
  // What could not be taken, though nothing was wrong with it: table, and why.
  std::vector<std::pair<std::string, absl::Status>> TakeChecked(Checked checked);

  config::Config& running_;
  GroupKeys& keys_;
  PairKeeper& pairs_;
  ConfigInForce& in_force_;
  const Vitals& vitals_;
  const Clock& monotonic_;
  EventSink& events_;
  const std::function<absl::Status()> keys_changed_;
  const std::vector<Taker> takers_;
};

}  // namespace cw::agent
