// SPDX-License-Identifier: Apache-2.0
//
// Fleet time on this host: what the pairs' probes say of the peers' clocks, rounds (ten per second), what peers are
// told, and where the result is published. Thread rule: the agent's loop. Times: local time, ns, unless their names say
// another. Source of the rules: sync/agreement.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/fleet_clock/clock.h"
#include "userspace/agent/fleet_clock/clock_anchor.h"
#include "userspace/agent/fleet_clock/clock_output.h"
#include "userspace/agent/fleet_clock/line_clock.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

struct ClockKeeperOptions {
  std::string host;      // as its peers call it: who is whose neighbour both ends compute from names
  uint32_t session = 0;  // another one with each start
  config::Anchor anchor = config::Anchor::kNone;
  absl::Duration anchor_bound = absl::Milliseconds(1);
  KernelTime kernel_time = KernelTime::Real();
  ClockOutput::Options output;  // page "": nothing is published
};

class ClockKeeper {
 public:
  // Whoever probes, on the keeper's behalf.
  struct Probing {
    std::function<void(uint32_t pair, probe::ClockPace pace)> set_pace;
    std::function<void()> before_round;  // the newest probes and the NICs' clocks are read
  };

  // All of them outlive it. An output that cannot be opened is an event: the agent's work does not rest on it.
  ClockKeeper(const ClockKeeperOptions& options, std::shared_ptr<const LineClock> clock, const Clock& monotonic,
              const PairTable& pairs, const NicTable& nics, PeerMail& mail, EventSink& events, Probing probing);

  void SetPeers(const std::vector<std::string>& peers, size_t fast) { fleet_.SetPeers(peers, fast); }

  void Update();  // after new probes; may be a round, where the rate of our clock jumped
  void Round();
  void ChoosePairs();  // once a second: one pair per host that is probed more often, for as long as it is known
  void SendTrips(PairState& pair, int64_t monotonic_ns);  // our own fastest probes, some times a second
  void Slow(int times) { slowed_ = times; }  // the loop has less processor time: lines are fitted so much more seldom
  void OnSlew();                             // CLOCK_MONOTONIC's rate has changed, and local time's has not

  void OnClaim(const PairState& pair, const sync::FleetClaim& claim) {
    fleet_.OnClaim(pair.peer, claim, clock_->NowNs());
  }
  void OnLinks(const PairState& pair, const probe::LinkBatch& batch);

  const FleetClock& fleet() const { return fleet_; }
  v1::ClockReply Reply() const;  // without the NICs' clocks

 private:
  void OpenOutput();
  void Publish();
  void TellOfChrony();
  void SendClaims();
  void SendLinks(uint32_t pair);
  void Forget();
  void Pace(PairState& pair);
  int64_t IdleUpdateNs(const PairState& pair) const;
  std::vector<ClockLink> Links() const;

  const ClockKeeperOptions options_;
  const std::shared_ptr<const LineClock> clock_;
  const Clock& monotonic_;
  const PairTable& pairs_;
  const NicTable& nics_;
  PeerMail& mail_;
  EventSink& events_;
  const Probing probing_;

  FleetClock fleet_;
  std::unique_ptr<RealtimeAnchor> anchor_;  // null: none is configured
  std::unique_ptr<ClockOutput> output_;     // null: nothing is published
  bool publish_failed_ = false;             // and it was said
  int slowed_ = 1;
  bool has_anchor_ = false;  // in the last round
  bool chrony_fed_ = false;  // and it was said
  uint64_t rounds_ = 0;
  int64_t idle_pairs_ = 0;  // that were heard, at the last Update
  int64_t looked_ns_ = 0;   // monotonic, when Update was called last
  uint32_t idle_turn_ = 0;  // index from which idle pairs are updated next; 0: from the first
  uint32_t given_up_ = 0;   // as told
};

}  // namespace cw::agent
