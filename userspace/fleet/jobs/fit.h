// SPDX-License-Identifier: Apache-2.0
//
// May a host take a place in a job, for example that of one that broke? What the job's hosts have among themselves is
// what it has to meet, and for its place also what the one that leaves has: as many NICs, on as many rails, as few
// switches between, delays and losses not worse than the worst pair's. What nobody measured is "unknown", not "yes".
// Pure; any thread. Cost: linear in paths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

struct FitHost {
  std::string name;
  bool connected = false, clock_known = false, clock_synced = false;
  std::vector<Addr> nics;
};

// One direction of one way between two of these hosts.
struct FitPath {
  std::string from, to;  // hosts
  bool dead = false;
  uint32_t sent = 0, lost = 0;
  double p99_ns = 0;    // one-way delay; 0: not known
  size_t switches = 0;  // on the way; 0: not known
};

struct FitRules {
  double delay_slack = 1.25, delay_floor_ns = 1000;  // times the job's worst pair, and more
  double loss = 0.001;
};

struct FitQuestion {
  FitHost host;
  std::vector<FitHost> job;    // its hosts without the one that leaves and without `host`
  std::string instead_of;      // "" = none
  std::vector<FitPath> paths;  // among all of these, with the one that leaves
};

// The checks and the answer; no coverage.
cwfabric::v1::FleetFitReply JudgeFit(const FitQuestion& question, absl::Span<const Finding> findings,
                                     const Topology& topology, const FitRules& rules = {});

}  // namespace cw::fleet
