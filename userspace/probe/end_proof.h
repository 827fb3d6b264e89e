// SPDX-License-Identifier: Apache-2.0
//
// Whether a slot's hops reach the peer. Behind the last switch a trace meets silence, and behind a cut as well; but
// what is cut answers no probes. So hops are whole once the path answered while they were the newest, and stay so when
// it dies. What is left: silent switches at the end of a path that lives. Pure. Thread rule: one thread.
#pragma once

#include "userspace/probe/hops.h"

namespace cw::probe {

class EndProof {
 public:
  // silence_behind: Discovery::EndsAtLastSwitch(). answers: the path's probes are answered now.
  bool Look(const Hops& hops, bool silence_behind, bool answers) {
    if (silence_behind && answers) whole_ = hops;
    return silence_behind && !hops.empty() && hops == whole_;
  }

 private:
  Hops whole_;
};

}  // namespace cw::probe
