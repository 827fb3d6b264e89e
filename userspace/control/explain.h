// SPDX-License-Identifier: Apache-2.0
//
// What the contention rule thinks of one flow: whether it may move, and if not, why not; what it expects of every other
// path of the flow's pair. Judged by the rule's own functions, on what it remembers from its last window.
// Pure; one thread per ContentionState.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/control/contention.h"

namespace cw::control {

// The first that holds, in this order.
enum class Standing {
  kUnknown,       // not seen in the last window: it sends nothing, or acknowledgements only
  kPathUnknown,   // its path is not probed
  kHeld,          // locked, placed by an operator, or a move of it is pending
  kAsked,         // a move was decided and is not seen yet
  kTrial,         // what a move brought is being measured
  kSettling,      // too short on its path
  kNotCongested,  // its path does not queue for long enough
  kRests,         // it has moved often lately
  kSmall,         // it sends too little
  kNoBetter,      // no path promises enough
  kWaits,         // a better path is known; it waits for its random turn
  kMayMove,       // only within the rule: evidence is there, targets are judged next
};
const char* StandingName(Standing standing);  // "not_congested"

struct PathExplanation {
  uint8_t slot = kSlotNone;
  bool usable = false;
  int queue_windows = 0;      // windows behind queue_ns; 0: not measured
  double queue_ns = 0;        // mean of the last windows
  double queue_limit_ns = 0;  // congested above this
  double marked_share = 0;    // of probes, over the last seconds (rule marks_memory_s)
  bool marks_known = false;   // the peer tells how probes arrive, and the fabric leaves the ECN bits alone
  int own_flows = 0;          // of this host on its most used link
  double others = 0;          // flows of other hosts, as far as the shares of our own tell
};

struct CandidateExplanation {
  PathExplanation path;
  double gain = 0;         // expected rate ÷ present rate; 0: nothing speaks for it
  double probability = 1;  // per window, of being taken
  bool enough = false;     // gain reaches the rule's least
  std::string text;        // why it is taken, or not
};

struct Explanation {
  Standing standing = Standing::kUnknown;
  std::string text;  // one sentence
  PairKey pair;
  PathExplanation here;
  double rate_bps = 0;
  double capacity_bps = 0;  // of a link, as learned; 0: not known
  int windows_on_path = 0;
  int congested_windows = 0;  // in a row …
  int congested_wanted = 0;   // … and so many are wanted
  std::vector<CandidateExplanation> candidates;
};

Explanation Explain(const ContentionState& state, const FlowKey& flow);

}  // namespace cw::control
