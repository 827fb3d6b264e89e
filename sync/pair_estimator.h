// SPDX-License-Identifier: Apache-2.0
//
// The difference between a peer's clock and ours, from one-way measurements in both directions.
//
// What goes in: our probes (T1 ours, T2 the peer's), the peer's own probes, whose low points it sends us (T1 the
// peer's, T2 ours), and the replies to our probes (T3 the peer's, T4 ours). The first two are stamped alike, tc egress
// to XDP, so what the stack adds cancels; a reply's stamps are both XDP's, which shifts the result by some 100 ns, but
// they are here at once. So replies show steps and drift quickly, and stand in while the peer's points are missing.
//
// How: low envelope per direction (envelope.h), straight lines of one slope under the clouds (fit.h), the offset midway
// between them. The window is up to 4 s and starts anew where newer points lie below the lines by more than noise:
// queueing can only add delay, so that is a step or a change of drift, never load.
//
// Errors: error_est assumes that the fastest paths of both directions are equally long (a constant asymmetry a shows as
// a/2 and cannot be seen by a pair alone). bound assumes nothing but |drift| ≤ max_drift_ppb: causality both ways. It
// holds at any time except between a step and its discovery.
//
// Pure; one thread per object. Sources: NTP's on-wire equation (RFC 5905 §8); the idea of an envelope per direction:
// Y. Geng et al., "Exploiting a natural network effect for scalable, fine-grained clock synchronization", NSDI 2018.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/envelope.h"

namespace cw::sync {

enum class SyncState {
  kUnknown,       // never measured both ways, or our clock was set back
  kSynchronised,  // both directions are fresh
  kFreeRunning,   // one direction is missing; the last line is continued, the bound grows
};
const char* SyncStateName(SyncState state);  // "unknown", "synchronised", "free-running"

struct Estimate {
  SyncState state = SyncState::kUnknown;
  int64_t offset_ns = 0;     // peer's clock − ours, at the time asked for
  double slope_ppb = 0;      // how fast offset_ns grows
  int64_t error_est_ns = 0;  // 95 % of the errors are smaller
  int64_t bound_ns = 0;      // the truth is within offset_ns ± bound_ns
  int64_t age_ns = 0;        // of the older direction's newest point
  int64_t min_rtt_ns = 0;    // of the window
  uint32_t epoch = 0;        // grows with every step that was found
};

struct EstimatorOptions {
  int64_t window_ns = 4'000'000'000;
  int64_t refit_ns = 100'000'000;           // the line is fitted at most this often
  int64_t fresh_ns = 1'000'000'000;         // older than this is not fresh
  int64_t remote_fresh_ns = 2'000'000'000;  // the peer's points come in batches
  double max_slope_ppb = 300'000;           // of the pair
  double max_drift_ppb = 200'000;           // for the bound: how fast the offset may really change
  int64_t reply_bias_ns = 200;              // added to error_est while only replies show the way back
  int64_t step_ns = 10'000;  // a jump of the line beyond this, and beyond the interval, is a step: a new epoch
};

class PairEstimator {
 public:
  explicit PairEstimator(const EstimatorOptions& options = {}) : options_(options) {}

  // Thousands per second are fine: each costs a division and a comparison.
  void AddLocal(const Point& probe);   // ours: T1, T2
  void AddRemote(const Point& probe);  // the peer's: T1, T2
  void AddReply(const Point& reply);   // T3, T4
  // A probe with its reply. Prefer it to the two calls: T1 after T4 shows that our clock was set back in between.
  void AddProbe(int64_t t1_ns, int64_t t2_ns, int64_t t3_ns, int64_t t4_ns) {
    AddReply({t3_ns, t4_ns});
    if (t1_ns <= t4_ns) AddLocal({t1_ns, t2_ns});
  }

  // Low points of our probes for the peer's AddRemote, at most one per 20 ms; each is given out once.
  std::vector<Point> TakeOutbound() { return local_.TakeFinished(); }

  // At `now_ns` of our clock. Refits when due (some 50 µs); otherwise cheap. Call it at least every 100 ms or so.
  Estimate At(int64_t now_ns);

  // Peer's clock − ours at `x_ns` of our clock by the line of the last At(): cheap, for each stamp that is converted.
  // 0 while state is unknown.
  int64_t OffsetAt(int64_t x_ns) const;

  void Reset();  // forgets all measurements; a new epoch

 private:
  static constexpr int64_t kLongAgoNs = INT64_MIN / 2;
  static constexpr int kClouds = 3;  // local, remote, reply

  // The offset is origin_y + level + slope·(x − origin_x).
  struct Line {
    bool valid = false;
    bool by_reply = false;
    int64_t origin_x_ns = 0;
    int64_t origin_y_ns = 0;
    double slope = 0;
    double level_ns[kClouds] = {};  // of each cloud's own line
    double depth_ns[kClouds] = {};  // of its points below that line, without the newest two
    double points = 0;              // of the direction with fewer
    double first_ns = 0;            // x of the oldest point − origin_x
    double last_ns = 0;
  };

  // The offset at at_ns lies in [low_ns, high_ns] + OffsetAt(at_ns), whatever the paths' lengths are.
  struct Interval {
    int64_t at_ns = kLongAgoNs;
    double low_ns = 0, high_ns = 0;
    bool contradiction = false;  // empty, or nothing to rest on: a clock was stepped
  };

  struct Cloud;  // one direction's low points

  bool Fit(const std::vector<Cloud>& clouds, int64_t now_ns, Line& line) const;
  int64_t BrokenAt(const std::vector<Cloud>& clouds, const Line& line, const double* depth_ns) const;
  int64_t ContradictedUntil(const std::vector<Cloud>& clouds) const;
  void Refit(int64_t now_ns);
  void Forget();
  void Tighten(int64_t now_ns);
  bool RefitDue(int64_t now_ns) const;
  bool IsStep(int64_t jump_ns) const;
  double LikelyErrorAt(int64_t now_ns) const;

  EstimatorOptions options_;
  Envelope local_, remote_, reply_;
  int64_t since_ns_ = 0;  // older points belong to a line that has ended
  int64_t fitted_ns_ = kLongAgoNs;
  int64_t newest_t4_ns_ = kLongAgoNs;
  int64_t asked_ns_ = kLongAgoNs;  // time of the last At()
  int set_back_ = 0;               // replies in a row older than the newest
  uint32_t epoch_ = 0;
  double slope_ = 0;          // last known; outlives a step, because a step does not change a crystal
  int64_t fitted_index_ = 0;  // our newest sub-window at the last fit
  Line line_;
  Interval interval_;
  Interval fitted_interval_;  // when line_ was fitted
};

}  // namespace cw::sync
