// SPDX-License-Identifier: Apache-2.0
//
// A scenario of the clock's simulator: hosts, links, what happens to them, and what must come out. Scenarios are TOML
// files (tests/clock/*.toml); docs/clock-scenarios.md lists the keys. Plain data.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sync/sim/path.h"

namespace cw::sync::sim {

inline constexpr double kNoBand = std::numeric_limits<double>::quiet_NaN();
inline bool IsBand(double band) { return !std::isnan(band); }

// Each host draws its own clock: uniform in ± offset and ± drift; the rest as given.
struct ClockRanges {
  double offset_ns = 1e9;
  double drift_ppb = 50'000;
  double wander_ppb = 0.5;
  double temperature_ppb = 0;
  double temperature_period_s = 600;
};

struct LinkSpec {
  PathSpec path;
  QueueSpec queue;
  double base_spread_ns = 2000;  // a link is longer by up to so much, both ways
  double asymmetry_ns = 0;       // each path, forward minus reverse: uniform in ±; drawn once
  int short_ways = 0;            // in each direction by itself so many paths, drawn once, …
  double short_ns = 0;           // … are shorter by so much
  bool replies_in_turn = false;  // each reply takes another path, as the product's do; otherwise the probe's
  double loss = 0;
  double probes_per_s = 125;  // each way; with replies and 8 neighbours that makes 2000 packets a second
  int paths = 8;              // entropies that are probed in turn
  double stack_ns = 190;      // a reply is stamped at another depth of the stack than a probe

  void UseNicStamps();  // hardware stamps instead of the kernel's
  bool nic_stamps = false;
};

// Leaves and spines: hosts sit on leaves, each path of a link takes one spine; packets share the queues of their hops.
struct SwitchSpec {
  int leaves = 0;  // 0: links of their own
  int spines = 4;
  double hop_ns = 600;
};

struct Region {  // hosts [from, to) are so far from all hosts outside
  int from = 0, to = 0;
  double delay_ns = 0;
  double asymmetry_ns = 0;  // towards the region minus back; for all its links alike
};

// NICs with free-running clocks of their own, tied to their host by cross-stamps; probes carry the NICs' stamps.
struct NicSpec {
  int per_host = 0;
  double drift_ppb = 20'000;
  double wander_ppb = 0.5;
  double read_ns = 800;        // from the host's stamp before to that after
  double read_noise_ns = 100;  // the NIC's stamp falls this far from the middle (each read; normal)
  double reads_per_s = 20;
};

// Which hosts an event is about: a list, a random share, or so many neighbours of one host.
struct Selector {
  std::vector<int> hosts;
  double share = 0;
  int part = -1;  // of a partition into `parts`, whether it is cut off or not
  int neighbours_of = -1;
  // Of neighbours_of; 0: that share of them, rounded up. Asymmetry: so many links of each host; 0: all.
  int count = 0;
  // As many as possible so that no host has more of them among its d neighbours than this, or than (d − 1) / 3.
  int most_per_host = 0;
};

enum class EventKind {
  kStep,
  kSuspend,
  kRestart,
  kJoin,
  kLeave,
  kPartition,
  kHeal,
  kLie,
  kTruth,
  kRamp,
  kDrift,
  kLoad,
  kAsymmetry
};

// What a lying host also writes into its claims. The message's MAC is its own in any case.
enum class Forgery {
  kNone,
  kIdentity,  // host_id of the fleet's lowest host, which bounds are told of
  kZeroBound,
  kVastBound,  // an hour
  kAhead,      // reference_seq + 100,000
  kInvented,   // reference_id = 1, whom nobody has ever heard
  kMirror      // each host hears its own fleet time
};

struct Event {
  EventKind kind = EventKind::kStep;
  double at_s = 0;
  Selector who;
  double ns = 0;                   // step, lie, asymmetry (all links of the hosts to others, towards them)
  double ppb = 0;                  // ramp; lie: grows so fast; drift: each host's rate jumps by anything in ±
  double seconds = 0;              // suspend, restart: how long; ramp, asymmetry: over how long
  double value = 0;                // load; partition: share of the hosts in the first part
  int parts = 2;                   // partition: into so many; more than two are of equal size, and `value` is not used
  bool noticed = false;            // suspend, step: the agent is told (Agreement::Disrupted)
  bool stops_clock = true;         // suspend: the local clock does not run
  bool reboot = false;             // restart: the local clock starts from another offset too
  bool two_faced = false;          // lie: half of the neighbours hear the opposite
  Forgery forge = Forgery::kNone;  // lie
};

struct AnchorSpec {
  std::vector<int> hosts;
  double from_s = 0, to_s = 1e9;
  double error_ns = 0;   // what it says − TAI
  double ppb = 0;        // the error grows so fast from from_s on
  double noise_ns = 20;  // of each reading
  double bound_ns = 1000;
  bool bad = false;  // for anchors_named: it ought to be found out
};

// Pass bands; NaN: none. Times in s, errors in ns, shares 0–1.
struct Expect {
  double p50_ns = kNoBand, p99_ns = kNoBand, max_ns = kNoBand;  // |F_i − F_j|
  double converge_s = kNoBand;                                  // from the start
  double reconverge_s = kNoBand;                                // from the last event
  double bound_coverage = 1;                                    // least, of all hosts
  double disjoint = 0;  // most samples of a host that no time satisfies together with another's of its timeline
  double est_coverage = 0.9999;  // least
  // Most seconds in which two synchronised hosts of one timeline that can reach each other are much further apart than
  // their error_est says.
  double untold_s = kNoBand;
  double est_ratio = kNoBand;        // median of error_est ÷ p99 error, most
  double bound_p50_ns = kNoBand;     // most: a bound that is never wrong because it is huge helps nobody
  double synchronised = kNoBand;     // least share of host-samples after settling
  double liars_named = kNoBand;      // least share of (honest host, lying neighbour) at the end
  double accused = 0.01;             // most of (honest host, honest neighbour)
  double disturbed = kNoBand;        // most hosts that an event of others disturbs
  double disturbed_epoch = kNoBand;  // … that get another epoch by it
  double jump_ns = kNoBand;          // most that a host's fleet time moves against true time in 100 ms
  double refused = kNoBand;          // least share of the victims that refuse (are not synchronised) at the end
  double victim_ns = kNoBand;        // most error of victims while they say synchronised
  double tai_p99_ns = kNoBand;       // |TAI as told − TAI| after settling
  double tai_coverage = kNoBand;     // least, of all that say they know it, from the start
  double tai_known = kNoBand;        // least share of host-samples that know TAI after settling
  double anchors_named = kNoBand;    // least share of (host, bad anchor) at the end
  double region_p99_ns = kNoBand;    // |F_i − F_j| within a region
  double nic_p99_ns = kNoBand;       // any two NICs
  double suspects_wrong = kNoBand;   // most other links that it names
  double suspects_named = kNoBand;   // least share of asymmetric links that the mesh names
};

struct Scenario {
  std::string file, name, about;
  std::string known_miss;  // not empty: why the bands are not met yet
  bool packet = true;      // packets and estimators; otherwise estimates come from the error model
  int hosts = 12;
  double seconds = 20;
  double settle_s = 5;  // judged from here on
  double grace_s = 1;   // hosts that an event is about are not judged for so long
  int seeds = 3;        // in the unit tests
  double round_s = 0.1;
  double glance_s = 0.01;  // between rounds hosts look for a jump of their clock's rate so often; 0: never
  double measure_s = 0.1;
  std::vector<int> victims;  // hosts judged apart from the others
  // So many hosts speak the wire of the version before, in which a claim tells its sender's bound in the width's place
  // and no split, and a claim that tells one is not read. A restart
  // brings the new version.
  double old_share = 0;
  ClockRanges clock;
  LinkSpec link;
  SwitchSpec switches;
  std::vector<Region> regions;
  NicSpec nics;
  std::vector<Event> events;
  std::vector<AnchorSpec> anchors;
  Expect expect;
};

// Errors name the file, the line and what to write instead.
absl::StatusOr<Scenario> ReadScenario(const std::string& path);
absl::StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file);

}  // namespace cw::sync::sim
