// SPDX-License-Identifier: Apache-2.0
//
// Fleet time without a master. Every host compares itself with a few random neighbours, and moves towards the trimmed
// mean of their fleet times; what nobody follows in particular, all share. A slow separate layer ties the swarm to TAI
// through hosts that have an anchor.
//
//   fleet = local + offset_ns + slope · (local − anchor_ns)
//
// Pure; one thread per object. The same code runs in the agent and in sync/sim.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sync/fleet_time.h"
#include "sync/pair_estimator.h"

namespace cw::sync {

// What the anchor of one host says, passed on from host to host: its fleet + offset_ns is TAI, ± bound_ns. A claim
// carries one of those that its sender knows, each claim the next one. anchor_id 0: none.
struct AnchorRecord {
  uint64_t anchor_id = 0;  // host_id of the host with the anchor
  int64_t offset_ns = 0;   // by the fleet time of the claim's sender
  int64_t bound_ns = 0;    // at the claim's anchor_ns
  double drift_ppb = 0;    // how fast offset_ns grows
  int64_t age_ns = 0;      // of the reading, at the claim's anchor_ns
  uint32_t hops = 0;       // 0: the sender's own anchor
  bool operator==(const AnchorRecord&) const = default;
};

// What a host says about its own fleet time, in authenticated messages, several times a second. Times are of its own
// local clock; the receiver converts them with its estimate of the link.
struct FleetClaim {
  uint64_t host_id = 0;   // hash of the host's name
  uint64_t timeline = 0;  // who founded it, and when; 0 = none yet. Hosts of another timeline are not compared
  SyncState state = SyncState::kUnknown;
  bool split = false;     // more of its neighbours than may lie contradict it, or each other
  int64_t anchor_ns = 0;  // local time of the values below
  int64_t offset_ns = 0;  // fleet − local
  double slope_ppb = 0;
  int64_t error_est_ns = 0;
  int64_t width_ns = 0;  // neighbours are at most so far from each other, as far as it knows: sync/fleet_bound.h
  uint64_t reference_id =
      0;              // the fleet's host of the lowest id: by whose name people call its time. No bound rests on it
  uint32_t hops = 0;  // to that
  // TAI, as far as known: fleet + tai_offset_ns is TAI, give or take tai_bound_ns. tai_bound_ns < 0: not known.
  int64_t tai_offset_ns = 0;
  int64_t tai_bound_ns = -1;
  uint32_t tai_hops = 0;       // 0: this host has an anchor of its own
  double rate_ppb = 0;         // slope_ppb without the correction in progress: what neighbours agree their rates on
  uint32_t reference_seq = 0;  // the reference's round: shows that it still lives
  AnchorRecord anchor;
  bool operator==(const FleetClaim&) const = default;
};

// A neighbour as seen from here.
struct NeighbourView {
  std::string name;
  Estimate link;     // its local clock − ours, at the time of Update
  FleetClaim claim;  // the newest
  int64_t claim_age_ns = 0;
};

// Why a neighbour is used or not. The letters are those that chronyc users know, where there are such.
enum class Reason : char {
  kUsed = '*',
  kTrimmed = '+',      // honest as far as can be told, but among the extremes that are left out
  kWaiting = 'w',      // too few measurements yet
  kFalseTicker = 'x',  // contradicts the majority beyond its bound or error
  kJittery = '~',      // its link's error is too large beside the others'
  kDistant = 'd',      // its bound is too large
  kTimeline = 't',     // it lives on another timeline
  kStale = 's',        // nothing heard for too long
};

struct NeighbourVerdict {
  std::string name;
  Reason reason = Reason::kWaiting;
  double disagreement_ns = 0;  // its fleet time − ours
  double weight = 0;           // share of the mean, 0–1
  // Only for a neighbour that is heard to have an anchor of its own: whether that anchor is believed (kUsed),
  // contradicts the majority of anchors (kFalseTicker), or cannot be judged (kWaiting).
  Reason anchor = Reason::kWaiting;
};

// One anchor that was heard of, this host's included.
struct AnchorVerdict {
  uint64_t anchor_id = 0;
  Reason reason = Reason::kWaiting;  // kUsed, kFalseTicker, or kWaiting: no majority
  bool contradicts = false;          // some other anchor: with no majority, these are why TAI is unknown
  bool stepped = false;              // has no vote until it agrees with the others again
  int64_t offset_ns = 0;             // our fleet + offset_ns is TAI by this anchor
  int64_t bound_ns = 0;              // of a stepped one: holds what it said before, too
  uint32_t hops = 0;
  bool smears = false;  // contradicts others and leaves them as fast as who spreads a leap second over a day: it, or,
                        // where there is no majority, they
};

struct AgreementOptions {
  double first_gain = 1.0;   // decays to …
  double steady_gain = 0.2;  // … this once the residual is small
  // Once settled, fleet time is slewed, at most this fast. It is stepped only to make good what a jump of our clock's
  // rate did until it showed, and after a step of our clock, with a new epoch.
  int64_t max_slew_ppb = 50'000;
  double max_drift_ppb = 200'000;  // of a local clock, for the bound
  int64_t claim_fresh_ns = 2'000'000'000;
};

// What an anchor (a clock disciplined by PTP, NTP, GPS) says on this host; none: has = false.
struct AnchorReading {
  bool has = false;
  int64_t local_ns = 0;
  int64_t tai_ns = 0;
  int64_t bound_ns = 0;
};

// TAI by the majority of anchors: fleet + offset_ns + slope · (fleet − fleet_ns), ± bound_ns.
struct TaiTime {
  static constexpr double kWanderPpb = kTaiWanderPpb;
  bool known = false;
  int64_t fleet_ns = 0;  // fleet time of the last round
  int64_t offset_ns = 0;
  double slope_ppb = 0;   // fleet time's rate is the clocks' mean, not TAI's
  int64_t bound_ns = -1;  // at fleet_ns; grows by kWanderPpb
  uint32_t hops = 0;      // to the nearest anchor; 0: this host's own

  int64_t ToTaiNs(int64_t at_fleet_ns) const;
};

class Agreement {
 public:
  Agreement(std::string self, uint64_t seed, const AgreementOptions& options = {});
  ~Agreement();
  Agreement(Agreement&&) noexcept;

  // One round; ten per second suit. Views of all configured neighbours, heard of or not.
  const FleetTime& Update(int64_t now_ns, const std::vector<NeighbourView>& neighbours,
                          const AnchorReading& anchor = {});

  // How many hosts the fleet has, this one included: how far apart any two of its graph are. Until it is told, no more
  // than this host and its neighbours.
  void SetMembers(size_t members);

  // How far the local clock may be off the steady line that it is taken for, likely and at most: what a slew brought
  // that was not noticed at once (LineKeeper). It is part of what Update tells from now on.
  void SetLocalError(int64_t likely_ns, int64_t bound_ns);

  // Between rounds: has our clock's rate jumped, by what the links say? Then the next round should be now, and its
  // claim be told at once. Cheap; every 10 ms suits.
  bool RateJumped(int64_t now_ns, const std::vector<NeighbourView>& neighbours);

  const FleetTime& now() const;
  double width_ns() const;   // the bound of one link, see sync/fleet_bound.h
  double bound_ns() const;   // … of all links, now().bound_ns less the local clock's error
  int bound_hops() const;    // over so many of them bound_ns reaches
  int most_liars() const;    // of the neighbours that the last round heard, so many may lie
  FleetClaim Claim() const;  // what to tell the neighbours
  const std::vector<NeighbourVerdict>& verdicts() const;  // of the last round
  const std::vector<AnchorVerdict>& anchors() const;      // of the last round
  TaiTime tai() const;
  // The local clock was stepped or slept: the timeline is looked for afresh, with a new epoch.
  void Disrupted(int64_t now_ns);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::sync
