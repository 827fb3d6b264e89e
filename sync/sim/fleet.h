// SPDX-License-Identifier: Apache-2.0
//
// The simulated hosts, who is whose neighbour, and what of the truth changes with time: who is up, cut off, or lying.
// Shared by the two kinds of links (links.h) and the world that drives them. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sync/agreement.h"
#include "sync/sim/scenario.h"

namespace cw::sync::sim {

struct Lie {
  bool on = false;
  bool two_faced = false;
  Forgery forge = Forgery::kNone;
  TrueNs since = 0;
  double ns = 0;
  double ppb = 0;
};

struct Peer {
  uint32_t host;
  uint32_t link;
  uint8_t end;  // which end of the link is ours
};

struct Host {
  std::string name;
  SimClock clock;
  std::vector<SimClock> nics;
  std::vector<Peer> peers;
  bool up = true;
  bool old = false;   // speaks the wire of the version before
  uint8_t group = 0;  // part of a partition
  uint16_t boots = 0;
  Lie lie;
  int region = -1;
  TrueNs unfair_until = -1;  // not judged before, because something happened to it
  bool liar_ever = false;
  bool victim = false;  // more of its neighbours lie than it has to withstand: judged apart
};

struct Link {
  std::array<uint32_t, 2> host;
  double base_ns;             // fastest packet, one way, without asymmetry
  double asymmetry_ns;        // host[0] → host[1] minus back, of the regions
  double added_ns = 0;        // by events, to the direction …
  uint8_t added_towards = 0;  // … that arrives at this end
  TrueNs added_from = 0;      // growing from here on …
  double added_for_ns = 0;    // … for so long

  double AddedNs(TrueNs t) const {
    if (added_for_ns <= 0) return added_ns;
    return added_ns * std::clamp(static_cast<double>(t - added_from) / added_for_ns, 0.0, 1.0);
  }
};

// Events with their hosts resolved.
struct Happening {
  Event event;
  TrueNs at;
  std::vector<uint32_t> hosts;
};

class Fleet {
 public:
  Fleet(const Scenario& scenario, uint64_t seed);

  bool Connected(const Link& link) const {
    const Host &a = hosts[link.host[0]], &b = hosts[link.host[1]];
    return a.up && b.up && a.group == b.group;
  }
  // In which part of the fleet a host is, when that is cut into so many, the first of this share.
  uint8_t PartOf(uint32_t host, int parts, double share) const;
  // Whose neighbours lie now, more of them than they have to withstand.
  void MarkVictims();
  // What the liar adds to its claims towards this neighbour.
  double LieNs(const Host& liar, uint32_t towards, TrueNs t) const;
  void Forge(const Host& liar, FleetClaim& claim) const;

  const Scenario& scenario;
  uint64_t seed;
  std::vector<Host> hosts;
  std::vector<Link> links;
  std::vector<Happening> happenings;  // by time
  double load;                        // now
  uint64_t lowest_id = 0;             // of all hosts

 private:
  void MakeHosts();
  void MakeLinks();
  void Resolve();
  std::vector<uint32_t> Select(const Event& event, Random& random) const;
  int Tolerated(uint32_t host) const;
  std::vector<uint32_t> MostPerHost(int most, Random& random) const;
  void Foresee(const Happening& h, Random& random);  // what changes clocks
};

}  // namespace cw::sync::sim
