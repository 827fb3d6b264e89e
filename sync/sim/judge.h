// SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario under many seeds and holds the results against its bands. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "sync/sim/measure.h"
#include "sync/sim/scenario.h"
#include "sync/sim/world.h"

namespace cw::sync::sim {

struct Miss {
  std::string metric;
  double value = 0, band = 0;
  bool most = true;  // the band is an upper one
  uint64_t seed = 0;
};

struct SeedResult {
  uint64_t seed = 0;
  Metrics metrics;
  Cost cost;
  std::vector<Miss> misses;
  std::vector<Moment> moments;  // how it went
};

struct Verdict {
  std::vector<SeedResult> seeds;
  bool passed = true;    // every band under every seed
  bool expected = true;  // passed, or a known miss; a known miss that passes is not expected
  std::string summary;   // one line
};

// A metric that a band asks for and that the run did not produce is a miss too.
std::vector<Miss> Judge(const Scenario& scenario, const Metrics& metrics, uint64_t seed);
SeedResult RunSeed(const Scenario& scenario, uint64_t seed);
Verdict RunScenario(const Scenario& scenario, int seeds, uint64_t first_seed = 1);
std::string Describe(const Miss& miss);

}  // namespace cw::sync::sim
