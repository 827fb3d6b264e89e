// SPDX-License-Identifier: Apache-2.0
//
// When each pair's next round of probes is due. A pair that carries data, or has a slot in doubt, is probed at the
// active interval, one that measures the clock at an interval of its own (a quarter of it while its line is young),
// another at the idle one. A budget of probes per second for the host stretches the intervals: first those of clock
// pairs, down to their share; then active pairs share theirs with equal intervals, idle pairs keep a small part. Pairs
// that carry data over a slot that has just missed a round come before all others, up to a share of the budget: with
// many peers it is they who need the next rounds soon. Rounds that were missed are skipped, never caught up, but for a
// few: a burst of late probes would look like a burst of losses. Pure: time comes in. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::probe {

// What a pair is to the clock: nothing, one of its links, or a link whose line is young.
enum class ClockPace : uint8_t { kNone, kSteady, kYoung };

struct CadenceOptions {
  int64_t active_interval_ns = 1'000'000;
  int64_t idle_interval_ns = 100'000'000;
  int64_t clock_interval_ns = 20'000'000;  // taken as one of the other two where it is not between them
  double budget_pps = 10'000;              // probes per second of the host, over all pairs and slots
  double idle_share = 0.2;                 // of the budget, when it does not do for all
  double clock_share = 0.2;
  double doubt_share = 0.5;
};

class Cadence {
 public:
  explicit Cadence(const CadenceOptions& options);

  // Other intervals and another budget, at once: no pair waits for the rest of a longer interval.
  void SetOptions(const CadenceOptions& options, int64_t now_ns);

  // probes: per round; 0 silences the pair. A new pair's first round is due within one interval.
  void SetPair(uint32_t pair, uint32_t probes, int64_t now_ns);
  void SetActive(uint32_t pair, bool active, int64_t now_ns);
  // A verdict on one of its slots hangs on the next rounds.
  void SetDoubt(uint32_t pair, bool doubt, int64_t now_ns);
  // While it is not active.
  void SetClock(uint32_t pair, ClockPace pace, int64_t now_ns);

  // Pairs with a round due, each then advanced behind now. Cleared first.
  void TakeDue(int64_t now_ns, std::vector<uint32_t>* due);
  // Time of the next tick with a due round: a multiple of the active interval. INT64_MAX: no pair.
  int64_t NextWakeNs() const;
  // The pair's interval at present, stretched by the budget.
  int64_t IntervalNs(uint32_t pair) const;
  uint64_t skipped_rounds() const { return skipped_; }
  uint64_t shared() const { return shared_; }  // how often intervals may have changed

 private:
  enum Pace { kDoubt, kActive, kYoung, kClock, kIdle, kPaces };
  struct Pair {
    int64_t due_ns = INT64_MAX;
    uint32_t probes = 0;
    bool active = false;
    bool doubt = false;
    Pace clock = kIdle;
    Pace pace() const { return doubt ? kDoubt : active ? kActive : clock; }
  };

  void Take(const CadenceOptions& options);
  Pair& At(uint32_t pair);
  void Repace(uint32_t pair, Pace before, int64_t now_ns);
  int64_t NominalNs(Pace pace) const;
  void Share();
  void ShareShort(double budget_pps, double active_want, double idle_want);
  int64_t DueAfter(uint32_t index, int64_t now_ns) const;
  int64_t NextDue(uint32_t index, int64_t now_ns) const;
  int64_t LatestNs(int64_t interval) const;

  CadenceOptions options_;
  std::vector<Pair> pairs_;  // by pair index
  int64_t interval_ns_[kPaces] = {};
  uint64_t probes_[kPaces] = {};  // per round of all pairs of a pace
  uint64_t skipped_ = 0;
  uint64_t shared_ = 0;
};

}  // namespace cw::probe
