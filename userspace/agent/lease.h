// SPDX-License-Identifier: Apache-2.0
//
// How long the programs act without an agent: the lease that it renews each second, and after what silence of the
// probes flows look after themselves. Both are in the control record, in jiffies. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "maps/abi.h"
#include "userspace/agent/event_sink.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class Lease {
 public:
  // CLOCK_MONOTONIC ns to jiffies and back.
  struct Ticks {
    std::function<uint64_t(int64_t monotonic_ns)> at;
    std::function<int64_t(uint64_t jiffies)> ns;
  };
  // Flows that the programs have, for people.
  struct Flows {
    std::function<size_t()> steered;
    std::function<uint64_t()> went_home;  // since the programs were loaded, for want of a lease
  };

  // ctl: the record of the map, or one in plain memory; it and the clock outlive the lease.
  Lease(cw_ctl& ctl, Ticks ticks, const Clock& monotonic);

  // At the start, before Renew: what the agent before us left may have gone home meanwhile.
  void TellOfFormer(absl::Duration lease, const Flows& flows, EventSink& events);
  double found_over_s() const { return found_over_s_; }  // 0: it was not over
  // How long a pair sends no probe before its flows look after themselves: longer than an idle one ever waits.
  void SetBlindAfter(absl::Duration idle_interval);
  // The kernel knows when this process ends (dataplane::Presence): while it is there, two seconds; a minute where the
  // prober has one or two processors, which a stack in software can keep to itself, and twice as long as it ever
  // waited. Not where pairs are probed so seldom that their flows have to look after themselves between two rounds.
  void SetPresent(bool present, int processors);
  // How late the prober's thread was within the last second, at most, and the longest interval of a pair that carries
  // data. A host whose processors are short is not blind because its prober waits for one, or keeps to its share: twice
  // as long as it waited lately and three such intervals, seconds at most, count for some minutes.
  void SawProber(absl::Duration lateness, absl::Duration interval);
  // The same interval, at once when it grows: what a host's processors are short of shows within half a second.
  void ProberSlows(absl::Duration interval);
  void Renew(absl::Duration lease);  // zero: it never ends
  double LeftS() const;              // 0: it never ends

  // A start takes a second or so, on a starved machine several. Transport timers are as long.
  static constexpr absl::Duration kGrace = absl::Seconds(10);
  // When the agent stops, of each pair and after its last probe: its flows don't look after themselves until its
  // successor probes it, for kGrace at most. Not of a pair that nobody has looked after for a while.
  void AwaitSuccessor(cw_pair& pair) const;

 private:
  void SetBlindJiffies();
  uint16_t Jiffies(absl::Duration duration) const;

  cw_ctl& ctl_;
  const Ticks ticks_;
  const Clock& monotonic_;
  double found_over_s_ = 0;
  bool present_ = false;
  absl::Duration idle_interval_, late_, stretched_, stuck_after_;
};

}  // namespace cw::agent
