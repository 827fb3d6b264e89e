// SPDX-License-Identifier: Apache-2.0
//
// Fleet time on this host: brings together the links to the peers, what they claim and this host's anchor, round by
// round, and tells what changed. Pure: time comes in as an argument, always the host's local clock. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sync/agreement.h"
#include "sync/pair_estimator.h"
#include "userspace/agent/fleet_clock/clock_events.h"
#include "userspace/agent/fleet_clock/clock_mesh.h"
#include "userspace/telemetry/event_log.h"

namespace cw::agent {

// The link to one peer: of the pairs of NICs between the two hosts, the one that is known best now.
struct ClockLink {
  std::string peer;
  uint32_t pair = 0;     // in the map cw_pairs
  std::string address;   // of the peer's NIC
  std::string nic;       // ours
  bool by_nics = false;  // arrivals are stamped by the NICs, not by the programs
  sync::Estimate estimate;

  // Prefers what is synchronised, then the smaller error.
  bool BetterThan(const ClockLink& other) const;
};

class FleetClock {
 public:
  // seed: different on every start, so that a restarted host is not taken for its former self.
  FleetClock(std::string host, uint64_t seed);

  // The whole list of peers. Whom to compare with is chosen among them (sync/neighbours.h), so host and peers must have
  // the same names everywhere. As many of them as `fast` says are to be probed more often; mostly both ends of a link
  // choose it.
  void SetPeers(const std::vector<std::string>& peers, size_t fast = 0);
  bool IsNeighbour(const std::string& peer) const { return neighbours_.count(peer) != 0; }
  bool IsFast(const std::string& peer) const { return fast_.count(peer) != 0; }

  // A claim that a peer's authenticated message brought.
  void OnClaim(const std::string& peer, const sync::FleetClaim& claim, int64_t now_ns);

  // What a neighbour measures of others, for the audit.
  void OnLinks(const std::string& peer, std::vector<LinkReport> links, int64_t now_ns);

  // One round, ten per second. links: one per peer that was measured. Returns what changed.
  std::vector<telemetry::Event> Round(int64_t now_ns, const std::vector<ClockLink>& links,
                                      const sync::AnchorReading& anchor);

  // See Agreement.
  void SetLocalError(int64_t likely_ns, int64_t bound_ns) { agreement_.SetLocalError(likely_ns, bound_ns); }

  // Between rounds: has the rate of our clock jumped? Then the next round should be now. Cheap, but only worth asking
  // when a link's slope or a claimed rate has changed by kRateMovedPpb since the last round.
  static constexpr double kRateMovedPpb = 1000;
  bool RateJumped(int64_t now_ns, const std::vector<ClockLink>& links);
  bool claims_moved() const { return claims_moved_; }

  // The local clock was set, or the machine slept. The links have to be measured afresh too.
  void Disrupted(int64_t now_ns);

  // What to tell the peers.
  sync::FleetClaim Claim() const { return agreement_.Claim(); }

  // A neighbour in the last round.
  struct Neighbour {
    std::string name;
    bool linked = false;  // measured
    ClockLink link;
    bool heard = false;
    sync::FleetClaim claim;
    int64_t claimed_ns = 0;  // when it arrived
    sync::NeighbourVerdict verdict;
  };
  const std::vector<Neighbour>& neighbours() const { return shown_; }
  // Its fleet time can be held against ours.
  static bool Compared(const Neighbour& neighbour);
  // Of the difference of the two fleet times, as the link shows it, ns.
  double LikelyErrorNs(const Neighbour& neighbour) const;
  std::vector<LinkReport> OwnLinks() const;  // of the last round; to tell the neighbours, about once a second
  MeshAudit Audit(int64_t now_ns) const { return links_.Audit(OwnLinks(), now_ns); }
  const sync::Agreement& agreement() const { return agreement_; }
  const sync::FleetTime& now() const { return agreement_.now(); }
  const std::string& host() const { return host_; }
  size_t peers() const { return peers_; }
  int64_t round_ns() const { return round_ns_; }  // of the last round; INT64_MIN: none yet

 private:
  struct Heard {
    sync::FleetClaim claim;
    int64_t at_ns = 0;
  };

  std::vector<sync::NeighbourView> Views(int64_t now_ns, const std::vector<ClockLink>& links);

  std::string host_;
  sync::Agreement agreement_;
  ClockEvents events_;
  size_t peers_ = 0;
  std::map<std::string, size_t> neighbours_;  // name -> place in shown_
  std::set<std::string> fast_;
  std::vector<Neighbour> shown_;
  std::map<std::string, Heard> heard_;
  LinkBook links_;
  bool claims_moved_ = false;  // a claimed rate has changed since the last round
  int64_t round_ns_ = INT64_MIN;
};

}  // namespace cw::agent
