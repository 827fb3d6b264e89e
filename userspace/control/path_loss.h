// SPDX-License-Identifier: Apache-2.0
//
// Grey failures: a path that loses a share of its packets is not dead, but as bad as dead for a reliable queue pair,
// which sends a whole window again for each loss. Told from the probes: all paths of a pair of NICs are probed in the
// same rounds, so what one of them loses beyond what the others lose is its own.
//
// How: probe_fates.h says which probes were lost on their path there. A round is judged only if more than half of the
// paths delivered theirs; what all lose together is the peer, the host or the prober. Over the last 64, 128, 256 and
// 2048 such rounds the number of losses is held against what chance allows at the larger of `normal` and three times
// the other paths' share (in that window or a longer one), and against the chance that losses common to all paths fell
// on this one (a binomial tail, given how many there were: a peer that loses packets must not cost a path). Of a run of
// losses at most two count: a silence belongs to the rule for dead paths. After a verdict the path is clean again when
// `clean_rounds` rounds in a row of judgement brought no more losses than `normal` explains.
//
// Pure: rounds come in, no clock. One thread per object; 4 KiB for a pair. Source of the test: the Poisson bound of
// a binomial tail.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "userspace/control/probe_fates.h"
#include "userspace/model/names.h"

namespace cw::control {

struct LossRules {
  double limit = 0.005;      // least share of lost packets for which a path is left; 0: never
  double normal = 0.001;     // loss that is nobody's fault
  double others_factor = 3;  // and so many times the share that the other paths lose
  double chance = 1e-6;      // of a verdict on a path that loses as normal, per judgement
  double fell_here = 1e-4;   // of common losses that fall on one path as its own did
  int least_lost = 4;
  int least_rounds = 32;
  int clean_rounds = 1000;
};

class PairLoss {
 public:
  explicit PairLoss(const LossRules& rules = {}) : rules_(rules) {}

  void SetLimit(double limit) { rules_.limit = limit; }  // what is known of the paths stays

  // In their order. A slot that leaves Round.judged begins anew when it comes back.
  void Take(const ProbeFates::Round& round);
  // What was learned of a slot is about another path now.
  void Forget(uint8_t slot);

  struct Verdict {
    uint8_t slot = 0;
    bool lossy = false;  // false: clean again
    int lost = 0;        // of …
    int rounds = 0;
    double others = 0;  // share that the other paths lost over as many rounds
  };
  // What changed since the last call.
  std::vector<Verdict> Judge();
  uint16_t lossy() const { return lossy_; }
  // Share of the last rounds (at most 2048) that a slot lost; 0 where nothing is known.
  double Share(uint8_t slot) const;

 private:
  static constexpr size_t kHistory = 2048;
  static constexpr std::array<int, 4> kWindows{64, 128, 256, 2048};

  struct Slot {
    std::bitset<kHistory> lost;  // newest at next - 1
    uint32_t next = 0;
    uint32_t rounds = 0;                     // at most kHistory
    std::array<int, kWindows.size()> sum{};  // losses within each window
    int run = 0;                             // losses in a row
    int clean_rounds = 0, clean_lost = 0;    // since the verdict
    void Add(bool was_lost);
    int Rounds(size_t window) const;
  };

  double Others(size_t slot, size_t window) const;
  double FellHere(size_t slot, size_t window) const;
  bool Lossy(uint8_t slot, Verdict& verdict) const;
  bool Clean(uint8_t slot, Verdict& verdict);

  LossRules rules_;
  uint16_t judged_ = 0, lossy_ = 0;
  std::array<Slot, kMaxSlots> slot_;
};

}  // namespace cw::control
