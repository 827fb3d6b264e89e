// SPDX-License-Identifier: Apache-2.0
//
// A gate for probes that are sent in pairs a known gap apart: a queue, or a machine that was busy, seldom delays both
// alike, so a pair whose gap survived was probably not delayed. Partners are successive probes of one lane (a path
// slot, in one direction): either back to back, or a round apart.
//
// What counts as survived is learned for each object, and so for each direction: the threshold is the quantile of the
// gap's errors that lets through the share asked for, never less than what an undisturbed path shows.
//
// A pair that was delayed as a whole (packets that are handled in one batch, a queue that stands) passes: what comes
// through still has to be compared with the fastest.
//
// Pure; one thread per object. Source: Y. Geng et al., "Exploiting a natural network effect for scalable, fine-grained
// clock synchronization", NSDI 2018, §3 (coded probes).
#pragma once

#include <cstdint>
#include <vector>

#include "sync/envelope.h"

namespace cw::sync {

struct CodedPairsOptions {
  double share = 0.3;                  // of pairs that pass, while the path is loaded
  int64_t least_ns = 50;               // a gap that is off by less always passes: stamps are no better
  int64_t widest_gap_ns = 20'000'000;  // probes further apart are no partners
};

class CodedPairs {
 public:
  explicit CodedPairs(int lanes, const CodedPairsOptions& options = {})
      : options_(options), last_(static_cast<size_t>(lanes)) {}

  struct Verdict {
    bool paired = false;         // it has a partner: the probe before it on its lane
    bool survived = false;       // both may be used …
    bool partner_known = false;  // … and the partner was already let through, with its own partner
  };
  // rate: of the receiver's clock against the sender's, minus 1. Lanes from 0 to lanes − 1.
  Verdict Add(int lane, const Point& probe, double rate);

  double threshold_ns() const { return threshold_ns_; }
  uint64_t pairs() const { return pairs_; }
  uint64_t survived() const { return survived_; }

 private:
  struct Lane {
    Point point;
    bool any = false, passed = false;
  };

  CodedPairsOptions options_;
  std::vector<Lane> last_;
  double threshold_ns_ = 0;
  uint64_t pairs_ = 0, survived_ = 0;
};

}  // namespace cw::sync
