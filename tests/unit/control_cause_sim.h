// SPDX-License-Identifier: Apache-2.0
//
// A packet-level simulation of a small leaf–spine fabric for tests of the rule of causes (control/causes.h): three
// leaves of four hosts, one queue per link and direction with CE marks, senders after DCQCN with a window, go-back-N
// and coalesced acknowledgements, receivers that take their time. One flow is the victim; one cause is injected, or
// none; the truth is what was injected and had an effect. The rule sees only what an agent sees: counts of packets,
// CNPs and NAKs, packets in flight at 25 looks a second, delays and losses of the victim host's probes, and which of
// the peers' probes arrived.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/control/causes.h"

namespace cw::control {

struct CauseScenario {
  Cause injected = Cause::kNone;
  uint64_t seed = 1;  // decides everything else
};

struct CauseResult {
  bool valid = false;  // false: what was injected had neither a clear effect nor clearly none; draw another seed
  Cause truth = Cause::kNone;
  Cause found = Cause::kNone;  // of the pair, after the last window
  std::string detail;          // for people
};

CauseResult SimulateCause(const CauseScenario& scenario, const CauseRules& rules);

}  // namespace cw::control
