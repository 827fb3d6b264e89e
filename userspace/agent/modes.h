// SPDX-License-Identifier: Apache-2.0
//
// What the agent may do: the mode and its capabilities, in the word that the programs read with every packet. An
// operator's choice holds until its end (deadlines.h), until the configuration's changes, or for good; an emergency off
// until an operator ends it. Thread rule: the agent's loop, but for what says another.
#pragma once

#include <mutex>

#include "absl/status/statusor.h"
#include "maps/abi.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/may.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class Modes {
 public:
  // ctl: the record of the map, or one in plain memory. All of them outlive it.
  Modes(cw_ctl& ctl, Deadlines& deadlines, const Clock& monotonic, Journal& journal)
      : ctl_(ctl), deadlines_(deadlines), monotonic_(monotonic), journal_(journal) {}
  Modes(const Modes&) = delete;  // may_ names it

  // At the start. An operator's mode, off included, outlives a crash (adopted); the configured one holds for a
  // dataplane made anew.
  void Begin(Allowed configured, const AllowOverrides& overrides, bool adopted);
  // Once a second. What somebody else set in the map (cwctl off, where no agent answered in time) is reported, and
  // holds.
  void LookAtMap();
  // The end that an earlier agent was asked for: cwctl off without an agent came later, and holds.
  void AdoptEnd();

  // Into their file, after any change; why that failed is said once.
  void KeepDeadlines();

  Allowed allowed() const;  // any thread
  // The same, and with flows of a pair, or with one flow: where nothing narrows it, as on the host.
  const May& may() const { return may_; }
  void Narrow(May::Withheld withheld) { withheld_ = std::move(withheld); }
  Mode mode() const { return allowed().mode(); }
  bool Acts(Capability c) const { return allowed().Acts(c); }
  bool Observes(Capability c) const { return allowed().of(c) == Allow::kObserve; }
  bool ActsAtAll() const { return allowed().ActsAtAll(); }

  absl::StatusOr<v1::ActionReply> Set(const api::Caller& caller, const v1::SetModeRequest& request);
  // for_s > 0: it goes back then. No name in the caller: the agent itself.
  v1::ActionReply Change(const api::Caller& caller, Allowed from, Allowed to, double for_s);
  // At once, though the loop hangs; any thread. What it was. Change has to follow on the loop.
  Allowed SwitchOff();
  void Due(const Deadlines::ModeEnd& end);  // its time has come; what somebody else set meanwhile stays
  // A configuration was read anew: a mode that an operator chose holds until the file's changes.
  void TakeConfigured(Allowed before, Allowed wanted);

 private:
  void Store(Allowed allowed);

  cw_ctl& ctl_;
  Deadlines& deadlines_;
  const Clock& monotonic_;
  Journal& journal_;
  May::Withheld withheld_;  // empty: nothing is narrower
  const May may_ = May([this] { return allowed(); },
                       [this](uint32_t pair, const FlowKey* flow) { return withheld_ ? withheld_(pair, flow) : 0; });
  // Never held for longer than a store takes: SwitchOff waits for nobody.
  std::mutex mutex_;
  uint32_t known_ = 0;          // under mutex_: the word that this agent set in the map, or has reported
  AllowOverrides overrides_;    // of what the mode says
  bool deadlines_kept_ = true;  // in their file
};

}  // namespace cw::agent
