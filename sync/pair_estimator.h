// SPDX-License-Identifier: Apache-2.0
//
// The difference between a peer's clock and ours, from one-way measurements in both directions.
//
// What goes in: our probes with their replies (T1 ours, T2 and T3 the peer's, T4 ours), and the best of the peer's own
// probes with their replies, which it sends us. A probe and its reply are handled in one go, so what slows the machine
// slows both, and half the difference of a trip's two ways is far steadier than any comparison of single ways. A probe
// is stamped at tc egress and at XDP, its reply twice at XDP: that shifts our trips by some 150 ns one way and the
// peer's by as much the other way, so their mean is right. Where the peer sends only T1 and T2, the shift is learned.
//
// How: of every 20 ms the fastest trip; a straight line through the midpoints of up to 8 s of them by weighted least
// squares, robust (Huber), with little weight for trips that took longer than the fastest: queueing can only add delay,
// and what it added may be wholly on one way. Where a parabola fits better the window shrinks; its tangent is taken.
// A line ends when newer points contradict it: trips that are off by more than they took longer, or single ways faster
// than the line allows (low envelopes by the millisecond). What counts as noise is learned; where even the
// fastest trips scatter by microseconds (an emulated processor), windows are three times as long. If the points agree
// with a bend (a clock's rate changed, its reading did not jump), the new line begins on the old one and only its slope
// is looked for, by quantile regression; otherwise it begins afresh, and if no drift can explain the jump, that is a
// step and a new epoch.
//
// Errors: error_est assumes that the fastest trips take equally long both ways (a constant asymmetry a shows as a/2 and
// cannot be seen by a pair alone) and that a clock's rate changes no more than it did lately (learned: at first
// anything is possible). bound assumes nothing but |drift| ≤ max_drift_ppb, or ≤ the line's + 100 ppm: causality both
// ways. It holds at any time except between a step and its discovery. A host that slept must say so (Reset): its clock
// shows nothing of it.
//
// Pure; one thread per object. Sources: NTP's on-wire equation (RFC 5905 §8); the idea of an envelope per direction:
// Y. Geng et al., "Exploiting a natural network effect for scalable, fine-grained clock synchronization", NSDI 2018;
// quantile regression: R. Koenker, G. Bassett, "Regression quantiles", Econometrica 46, 1978; weights by delay and a
// window that sizes itself: chrony's sourcestats (doc/faq); robust weights: P. J. Huber, "Robust statistics", 1981.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sync/envelope.h"
#include "sync/pair_line.h"
#include "sync/round_trip_change.h"
#include "sync/stamp_kind.h"

namespace cw::sync {

enum class SyncState {
  kUnknown,       // never measured both ways, or our clock was set back
  kSynchronised,  // both directions are fresh
  kFreeRunning,   // one direction is missing; the last line is continued, the bound grows
};
const char* SyncStateName(SyncState state);  // "unknown", "synchronised", "free-running"

struct Estimate {
  SyncState state = SyncState::kUnknown;
  int64_t offset_ns = 0;       // peer's clock − ours, at the time asked for
  double slope_ppb = 0;        // how fast offset_ns grows
  int64_t error_est_ns = 0;    // 99.99 % of the errors are smaller, were the shortest paths of both directions alike
  int64_t bound_ns = 0;        // the truth is within offset_ns ± bound_ns
  int64_t age_ns = 0;          // of the older direction's newest point
  int64_t min_rtt_ns = 0;      // of the window
  int64_t changed_ns = 0;      // half of what round trips have changed by in the last minutes: were all of it on one
                               // way, offset_ns would be wrong by so much. error_est_ns is without it
  uint32_t epoch = 0;          // grows with every step that was found
  double slope_error_ppb = 0;  // standard deviation of slope_ppb
  double rate_change_ppb = 0;  // slope_ppb may change by so much, likely: error_est grows so fast with age
  int64_t line_age_ns = 0;     // since the first measurement, or since the clocks were last seen to change
  bool settled = false;        // the line is long enough to have shown its slope: fit to take one-way delays by.
                               // Until then it may be microseconds off, and error_est says so
};

struct EstimatorOptions {
  int64_t window_ns = 8'000'000'000;        // at most; half and less where a clock's rate wanders
  int64_t refit_ns = 200'000'000;           // without news the line is fitted at most this often
  int64_t fresh_ns = 1'000'000'000;         // older than this is not fresh
  int64_t remote_fresh_ns = 2'000'000'000;  // the peer's points come in batches
  // Of the pair. A line is as steep as clocks usually are apart, until lines before it were: noise makes steep lines,
  // too. Kernels take the counter's rate on trust within 500 ppm, so two clocks may be twice that apart.
  double usual_slope_ppb = 300'000, max_slope_ppb = 1'000'000;
  // For the bound: how fast the offset may really change, if the line is not nearly as steep or steeper.
  double max_drift_ppb = 200'000;
  int64_t reply_bias_ns = 200;  // added to error_est while only replies show the way back
  int64_t step_ns = 10'000;     // a jump of the line beyond this, and beyond the interval, is a step: a new epoch
};

class PairEstimator {
 public:
  explicit PairEstimator(const EstimatorOptions& options = {}) : options_(options) {}

  // Thousands per second are fine: each costs two divisions and two comparisons.
  void AddLocal(const Point& probe);   // ours: T1, T2
  void AddRemote(const Point& probe);  // the peer's: T1, T2
  void AddReply(const Point& reply);   // T3, T4
  // A probe with its reply. Prefer it to the two calls: what slowed both shows, and T1 after T4 shows that our clock
  // was set back in between.
  void AddProbe(int64_t t1_ns, int64_t t2_ns, int64_t t3_ns, int64_t t4_ns) {
    AddTrip({t1_ns, t2_ns, t3_ns, t4_ns}, StampKind::kSoftware);
  }
  // received: how T2 and T4 were stamped; kHardware only if both were. Kinds are not mixed: see stamp_kind.h.
  void AddTrip(const Trip& trip, StampKind received);
  // A probe of the peer's with its reply: T1, T4 the peer's, T2, T3 ours. Prefer it to AddRemote: the shift of replies'
  // stamps then cancels at once.
  void AddRemoteProbe(const Trip& trip);

  // Low points of our probes for the peer's AddRemote, at most one per 20 ms; each is given out once.
  std::vector<Point> TakeOutbound() { return local_.TakeFinished(); }
  // The same as whole trips, for the peer's AddRemoteProbe.
  std::vector<Trip> TakeOutboundTrips() { return trips_.TakeFinished(); }

  // At `now_ns` of our clock. Refits when due (some 50 µs, 5 times a second); otherwise below 1 µs. Every 10 ms suits a
  // pair that is probed each millisecond: a change of drift is found at the next call. At least every 100 ms or so.
  Estimate At(int64_t now_ns);

  // For a host that is short of processors: lines that are not young are fitted so many times more seldom, up to five.
  // Steps and changes of a clock's rate still show at the next At().
  void FitSeldom(int times) { seldom_ = std::clamp(times, 1, kMostSeldom); }

  // Peer's clock − ours at `x_ns` of our clock by the line of the last At(): cheap, for each stamp that is converted.
  // 0 while state is unknown.
  int64_t OffsetAt(int64_t x_ns) const { return line_.OffsetAt(x_ns); }

  double slope() const { return slope_; }  // how fast the offset grows, as last known

  void Reset();  // forgets all measurements; a new epoch

  // Trips take other paths from now on (PathChoice): round trips of another length are no news.
  void PathsChanged() { round_trips_.PathsChanged(); }

 private:
  static constexpr int kMostSeldom = 5;
  static constexpr int64_t kLongAgoNs = INT64_MIN / 2;
  static constexpr int64_t kSubWindowNs = 20'000'000;
  static constexpr int64_t kFineNs = 1'000'000;
  static constexpr int kFineWindows = 128;
  static constexpr int kSubWindows = 410;  // somewhat more than options.window_ns
  static constexpr int kNoisyWindows = 3;  // … and so many times that where trips are noisy

  // The offset at at_ns lies in base_ns + [low_ns, high_ns], whatever the paths' lengths are.
  struct Interval {
    int64_t at_ns = kLongAgoNs;
    int64_t base_ns = 0;
    double low_ns = 0, high_ns = 0;
    bool contradiction = false;  // empty, or nothing to rest on: a clock was stepped

    bool Open() const;
    bool Apart(const Interval& other, double slack_ns) const;
  };

  // Of the newest `of` lows of a cloud at least `deep` lie below the line by more than tolerance: the line has ended.
  // The tolerance is learned from how deep such runs were over the last seconds, the newest second apart.
  struct RunTest {
    size_t of, deep;
    double least_ns;
    std::array<double, 8> depth_ns{};  // by second, a ring
    int64_t second = 0;

    void Learn(int64_t now_ns, double depth_ns);
    void Unlearn();  // the newest two seconds: they belong to a change
    double ToleranceNs() const;
  };
  static constexpr int kTests = 3;

  Clouds Coarse(int64_t since_ns) const;
  int64_t WindowNs() const { return static_cast<int64_t>(window_share_ * static_cast<double>(options_.window_ns)); }
  LineData ForFit(int64_t since_ns, int64_t now_ns) const;
  double BesideNeighboursNs(const std::vector<TripEnvelope::Low>& trips, int64_t most_rtt_ns) const;
  void MeasureNoise(int64_t now_ns);
  double LeastToleranceNs() const;
  int64_t BrokenBy(RunTest& test, CloudIndex index, const std::vector<Envelope::Low>& newest, int64_t now_ns);
  int64_t BrokenAt(int64_t now_ns, bool coarse);
  int64_t ContradictedUntil(const Clouds& clouds) const;
  void Refit(int64_t now_ns);
  PairLine FitSince(int64_t since_ns, int64_t now_ns) const;
  void JudgeTrip(int64_t x_ns, const Trip& trip);
  bool TryFrom(int64_t since_ns, int64_t now_ns);
  void Take(const PairLine& line, int64_t now_ns);
  void Learn(int64_t now_ns);
  void Forget();
  void StartAnew();
  Interval IntervalAt(int64_t at_ns, int64_t from_ns, int64_t to_ns) const;
  void Tighten(int64_t now_ns);
  void TightenByNewest(int64_t now_ns);
  void JudgeEnd();
  int64_t RefitNs() const { return seldom_ * options_.refit_ns; }
  bool RefitDue(int64_t now_ns) const;
  bool IsStep(int64_t jump_ns) const;
  double UnknownSlope() const;
  double MostDrift() const;     // ns per ns
  double SteepestLine() const;  // the same, of the next one
  double LikelyErrorAt(int64_t now_ns) const;
  double RecentErrorAt(int64_t now_ns) const;

  EstimatorOptions options_;
  int seldom_ = 1;
  Envelope local_{kSubWindowNs, kSubWindows}, remote_{kSubWindowNs, kSubWindows}, reply_{kSubWindowNs, kSubWindows};
  TripEnvelope trips_{kSubWindowNs, kSubWindows}, remote_trips_{kSubWindowNs, kSubWindows};
  Envelope fine_local_{kFineNs, kFineWindows}, fine_reply_{kFineNs, kFineWindows};
  SeriesKind kind_;
  RoundTripChange round_trips_;
  int64_t began_ns_ = kLongAgoNs;  // our first trip
  int64_t since_ns_ = 0;           // older points belong to a line that has ended …
  int64_t stepped_ns_ = 0;         // … or even to a clock that was stepped since: they prove nothing any more
  struct Judged {
    int64_t x_ns = 0;
    double depth_ns[2] = {};  // by how much a trip contradicts the line, either way
  };
  std::array<Judged, 3> judged_{};  // the newest trips that say something, newest first
  RunTest trip_test_{3, 3, 120};
  int64_t suspect_ns_ = 0;  // since when points seem to contradict the line; 0: they do not
  int64_t fitted_ns_ = kLongAgoNs;
  int64_t newest_t4_ns_ = kLongAgoNs;
  int64_t asked_ns_ = kLongAgoNs;  // time of the last At()
  int set_back_ = 0;               // replies in a row older than the newest
  uint32_t epoch_ = 0;
  bool slope_known_ = false;   // a line lived long enough to tell
  bool settled_ = false;       // … since the last step
  double slope_ = 0;           // last known; outlives a step, because a step does not change a crystal
  int64_t fitted_index_ = 0;   // our newest sub-window at the last fit
  int64_t checked_index_ = 0;  // … and our newest millisecond at the last check
  PairLine line_;
  Interval interval_;
  Interval closed_interval_;  // the newest that points of both directions made
  Interval fitted_interval_;  // when line_ was fitted
  Interval end_interval_;     // by the points before since_ns_, there; until the line is old enough to be compared
  std::array<std::array<RunTest, kTests>, kClouds> tests_ = MakeTests();
  static std::array<std::array<RunTest, kTests>, kClouds> MakeTests();

  mutable std::vector<Envelope::Low> newest_;  // scratch

  int noisy_turns_ = 0;  // measurements in a row, about, that found noise
  double noise_ns_ = 0;  // of single trips' midpoints, whatever the line; 0: no more than stamps' own

  // Learned while lines live long.
  int64_t learned_ns_ = kLongAgoNs;
  bool shift_known_ = false;
  double reply_shift_ns_ = 0;
  double shift_for_s_ = 0.2;
  double uneven_ns_ = 0, bend_ns_ = 0;
  double window_share_ = 1;  // of options_.window_ns
  double spread_ns_ = 0;
  double least_rtt_ns_ = 0, least_trip_ns_ = 0;
  double floor_ns_ = 0;       // one way of the fastest, by the two lines' levels
  double bend_floor_ns_ = 0;  // … by whole trips: what a short window reaches
  double change_ppb_ = 0;
  bool change_seen_ = false;
  PairLine ended_;                               // the line before, if it ended in a bend, …
  int64_t ended_from_ns_ = 0, ended_to_ns_ = 0;  // … somewhere between these
  double last_change_slope_ = 0;
};

}  // namespace cw::sync
