// SPDX-License-Identifier: Apache-2.0
//
// The parts of Agreement (agreement.h): agreement.cc decides, agreement_peers.cc looks at the neighbours,
// agreement_errors.cc says how wrong that may be, agreement_split.cc what to do when the timeline is split,
// agreement_timeline.cc chooses the timeline, agreement_rate.cc follows rates.
// Pure; one thread per object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sync/agreement.h"
#include "sync/anchors.h"
#include "sync/fleet_bound.h"
#include "sync/reference.h"
#include "sync/vote.h"

namespace cw::sync {

inline constexpr int64_t kLongAgoNs = INT64_MIN / 2;
inline constexpr double kRoundS = 0.1;  // gains are per so long

// Timelines
inline constexpr int64_t kListenNs = 2'000'000'000;      // silence before a host founds a timeline
inline constexpr int64_t kTimelineHoldNs = 300'000'000;  // and up to twice that before a settled host leaves its own
inline constexpr int64_t kStrangerNs = 60'000'000'000;
inline constexpr int64_t kRemnantNs = 2'000'000'000;
inline constexpr int64_t kFoundNs = 1'000'000'000;     // of hearing others before a new timeline is settled
inline constexpr int64_t kPatienceNs = 6'000'000'000;  // then it is settled as it is
inline constexpr int kFoundRounds = 8, kJoinRounds = 5;
inline constexpr double kAcquireGain = 0.5;
inline constexpr double kNearErrors = 3;  // of the links: so near the neighbours must be to call it settled
// Following
inline constexpr int64_t kIsolatedNs = 1'000'000'000;
inline constexpr int64_t kDisputeNs = 500'000'000;       // contradictions that last are refused …
inline constexpr int64_t kReconciledNs = 1'000'000'000;  // … until they have been gone for so long
inline constexpr int64_t kChaosNs = 3'000'000'000;
inline constexpr int64_t kSplitNs = 5'000'000'000;      // a split timeline is one for so long after the last sign of it
inline constexpr int64_t kStuckNs = 8'000'000'000;      // … that is not over by now no rule will end
inline constexpr int64_t kToldSplitNs = 1'000'000'000;  // and a contradiction is told for so long
inline constexpr int kOffRounds = 2;
inline constexpr double kSlewableNs = 10'000;  // more is stepped when a majority says so
inline constexpr double kRateTimeS = 0.5;
inline constexpr double kQuietRatePpb = 1000, kMostRateTimes = 20;
inline constexpr double kPlausiblePpb = 100'000, kPlausibleTimeS = 10;  // beyond, the common rate is pulled back
inline constexpr double kUsualTimeS = 5;
inline constexpr double kYoungGain = 0.5, kMomentum = 0.4;
inline constexpr int kYoungRounds = 30, kMatureRounds = 50;
inline constexpr double kRateJumpPpb = 1000;
inline constexpr double kRateJumpNoises = 6;
inline constexpr int64_t kLeastRoundNs = 8'000'000;  // between rounds, however fast rates change
inline constexpr double kFastGain = 0.3;
inline constexpr int64_t kMakeGoodNs = 500'000'000;      // after a jump of rates
inline constexpr int64_t kMakeGoodRoundNs = 20'000'000;  // and rounds are so far apart then
inline constexpr double kClearNoises = 10;
// A rate that changes steadily, as when the air warms: so far the links' slopes trail, and so far their offsets. Below
// the last, and fully below twice that, it may be noise.
inline constexpr double kLagSlopeS = 1, kLagOffsetS2 = 1, kClearTrendPpbS = 3;
// Air does not change a crystal's rate faster, but what all hosts share and nobody sees in the others may carry the
// fleet's rate anywhere: half of this is gone ahead to in full, this not at all.
inline constexpr double kWarmestPpbS = 100;
inline constexpr int64_t kSteadyNs = 5'000'000'000;  // after a step or a jump: what that made of rates is no trend
inline constexpr double kBendPpbPerS = 200'000;      // how fast the slope of fleet time may change
inline constexpr double kHeardAfterS = 0.5;          // what far hosts measured is so old
inline constexpr double kToldWithinS = 0.003;        // a jump of a clock's rate is told to the neighbours
inline constexpr int64_t kReferenceNs =
    2'000'000'000;  // of being settled before one is a reference, or has waited for all links
// Errors
inline constexpr double kErrorFactor = 5, kWholeFleetFactor = 4.5, kNoWeight = 1e-30;
inline constexpr double kLinkSds = 4;  // standard deviations that a link's error_est is, about
inline constexpr double kScatterRises = 0.3, kScatterFalls = 2, kClearRise = 3;  // s; young links get better fast
inline constexpr double kShownRises = 1, kShownFalls = 8, kShownForS = 4;        // s
inline constexpr double kLeastShownLinks = 0.5, kShownMargin = 1.25;
inline constexpr double kTrendTimeS = 3, kLagS2 = 2, kMostTrendPpbS = 500;
inline constexpr double kForgetChangeS = 60, kNoticedWithinS = 0.05;
inline constexpr double kFreeRunPpb = 1000;
// A line that rounds renew is continued for a tenth of a second, and for ten seconds by readers of a dead agent: its
// rate is known to some deviations of what the links show, and a crystal wanders.
inline constexpr double kHeldPpb = 200, kHeldRateNoises = 4, kHeldTrendS = 5;

struct Agreement::Impl {
  // What is remembered of a neighbour between rounds.
  struct Memory {
    std::string name;
    uint64_t id = 0;  // that the name gives it; claims of another id are not its own
    uint32_t link_epoch = 0;
    bool link_known = false;
    bool returning = false;                 // back after an absence, not yet near
    int64_t epoch_changed_ns = kLongAgoNs;  // its link was stepped
    int64_t comparable_ns = kLongAgoNs;     // last
    int64_t returned_ns = kLongAgoNs;
    int64_t absent_ns = 0;  // how long it was away
    int64_t quarantined_until_ns = kLongAgoNs;
    float wrong = 0;  // 1: named
    int quarantines = 0;
  };

  // A neighbour in this round.
  struct Peer {
    uint32_t view = 0;
    Reason reason = Reason::kWaiting;
    bool heard = false;       // link and claim are fresh
    bool comparable = false;  // … and on our timeline, with a time of its own
    bool member = false;
    bool link_settled = false;
    bool line_broke = false;  // just now: one of the two clocks changed its rate
    double apart_ns = 0;      // its fleet time − ours
    double rate_ppb = 0;      // its fleet rate − ours
    double rate_error_ppb = 0;
    double link_error_ns = 0;  // likely
    double error_ns = 0;       // … and more where the link is distant beside the others
    double changed_ns = 0;     // … if what its round trips have changed by is all on one way
    double claim_error_ns = 0;
    double bound_ns = 0;  // of the link
    double width_ns = 0;  // as it tells
    double age_s = 0;     // of the claim
    double tolerance_ns = 0;
    double weight = 0;
  };

  // Of single links in a round.
  struct Scatter {
    double links = 1;     // so many of equal weight would make as good a mean
    double seen_ns2 = 0;  // squares of their deviations, summed over these
    double said_ns2 = 0;  // what a link says of itself
    double Ns2(double most_said_ns2) const;
  };

  // Those of a split timeline who can be right together. The first is ours.
  struct Camp {
    double apart_ns;  // its fleet time − ours
    int hosts;        // with us, if it is ours
    int telling;      // that the timeline is split
    std::vector<size_t> voters;
  };

  struct Votes {
    uint64_t timeline;
    int heard, synchronised, strangers;
  };

  Impl(std::string self_name, uint64_t seed, const AgreementOptions& with);

  // agreement.cc
  void Begin(int64_t now_ns);
  void MoveAnchor(int64_t now_ns);
  void StepBy(double ns);
  void Unsettle(int64_t now_ns, FleetTrouble why);
  void Disrupt(int64_t now_ns);
  void Settle(int64_t now_ns);
  uint64_t NewTimeline(int64_t now_ns) const;
  uint64_t NextTimeline(int64_t now_ns) const;
  void CountTimelines(const std::vector<NeighbourView>& views);
  uint64_t Vouched() const;
  void ChooseTimeline(int64_t now_ns);
  bool LeaveTimeline(int64_t now_ns);
  void Acquire(int64_t now_ns, const std::vector<NeighbourView>& views);
  bool NearEnough(int64_t now_ns, double apart_ns) const;
  void Follow(int64_t now_ns, const std::vector<NeighbourView>& views);
  int HeardWithUs(const std::vector<NeighbourView>& views) const;
  bool Join(int64_t now_ns, int liars, int agreeing);
  void FollowOne(int64_t now_ns, const std::vector<NeighbourView>& views);
  void Agree(int64_t now_ns, const std::vector<NeighbourView>& views);
  double ImplausibleRate(const std::vector<NeighbourView>& views);
  void Rejoin(int64_t now_ns);
  void StepTo(int64_t now_ns, double apart_ns);
  void Dispute(int64_t now_ns, const Clique& clique);
  void FollowRate(int f, double implausible_ppb);
  double FastGain(double value, double noise) const;
  double YoungGain() const;
  double Momentum() const;
  double ClampRate(double ppb) const;
  double SteadyTrend() const;  // of our rate, ppb/s; 0 while it may be noise
  bool OwnLinesBroke() const;
  double MakeGood(int64_t now_ns, double apart_ns);
  void Slew(double apart_ns);
  void HearAnchors(const std::vector<NeighbourView>& views, const AnchorReading& own);
  void Publish(const std::vector<NeighbourView>& views);
  double ErrorDriftPpb() const;
  FleetClaim Claim() const;

  // agreement_split.cc
  void HearSplit(int64_t now_ns, const std::vector<NeighbourView>& views);
  bool SeesSplit(int64_t now_ns, const std::vector<NeighbourView>& views) const;
  void FindCamps(const std::vector<NeighbourView>& views);
  void VouchForSplit(int64_t now_ns);
  size_t ChooseCamp(int64_t now_ns) const;
  void Contest(int64_t now_ns, const std::vector<NeighbourView>& views, const Clique& clique);
  void KeepTogether();
  void GoOver(int64_t now_ns, const Camp& camp);

  // agreement_errors.cc
  double MeanNoise() const;
  double ChangedNs();
  Scatter ScatterOf(double low, double high) const;
  void LearnScatter(const Scatter& now);
  double MostSaidNs2() const;
  void MeasureError(double apart_ns);
  void MeasureBound(int64_t now_ns);
  void FindReference(int64_t now_ns, const std::vector<NeighbourView>& views);
  double GrowthPpb() const { return options.max_drift_ppb + static_cast<double>(options.max_slew_ppb); }
  // How many of so many neighbours that are heard may lie.
  int Liars(int heard) const {
    const bool all = fleet_size > 0 && static_cast<size_t>(heard) + 1 >= fleet_size;
    return all ? MostLiarsOfAll(heard) : MostLiars(heard);
  }
  int BoundHops() const { return sync::BoundHops(std::max(fleet_size, memories.size() + 1)); }

  // agreement_peers.cc
  void Assess(int64_t now_ns, const std::vector<NeighbourView>& views);
  void AssessOne(int64_t now_ns, const NeighbourView& view, Memory& memory, Peer& peer) const;
  void Align(const std::vector<NeighbourView>& views);
  void SelectForAcquiring(const std::vector<NeighbourView>& views);
  void SelectForFollowing(int64_t now_ns);
  void DropHopeless();
  void SetTolerances();
  void Excuse(int64_t now_ns);
  void FillOpinions();
  bool Contradict();
  Clique Judge(double own_tolerance);
  void Remember(int64_t now_ns);
  int Excluded() const;
  double MeanRate(int f);
  bool RateJumped(int64_t now_ns, const std::vector<NeighbourView>& views);

  const AgreementOptions options;
  const std::string self;
  const uint64_t id;
  int64_t hold_ns;

  FleetTime time;
  double fraction_ns = 0;                  // of time.offset_ns
  double rate_ppb = 0;                     // time.slope_ppb without the slew
  double slew_ppb = 0, rate_step_ppb = 0;  // of the last round
  double error_ns = 0;
  double link_scatter_ns2 = 0;            // of single links
  double scatter_ns2 = 0;                 // … as the trimmed mean feels it
  double likely_scatter_ns2 = 0;          // … with what they say held against what they have shown:
  double shown_ns2 = 0, shown_links = 0;  // means over seconds of what was seen, and of links − 1
  double shown_for_s = 0;
  double effective_n = 1;                           // so many links of equal weight the mean is as good as
  int64_t local_likely_ns = 0, local_bound_ns = 0;  // SetLocalError
  double own_tolerance_ns = 0;
  double usual_error_ns = 0;  // of the links
  double spread_ns = 0;       // of the neighbours' fleet times; their median:
  double median_ns = 0;
  double rate_noise_ppb = 0;         // likely error of the neighbours' mean rate
  double usual_rate_noise_ppb = 0;   // as their scatter shows it, over seconds
  double trend_ppb_s = 0;            // of our rate
  bool bent = false;                 // our clock's rate has jumped in this round
  int64_t unsteady_ns = kLongAgoNs;  // a step, a jump of a rate or a contradiction was last seen
  int64_t jumped_ns = kLongAgoNs;    // when rates last did
  double change_ppb = 0;             // by which rates have jumped in the last minutes
  FleetTrouble trouble = FleetTrouble::kSettling;

  bool started = false, settled = false, heard_anyone = false;
  bool joined = false;           // since it settled, more neighbours than may lie have agreed with it
  bool disrupted_alone = false;  // our line was broken; if nobody helps, the timeline is lost
  bool own_step = false;         // most links say that a clock was stepped: ours
  int64_t last_ns = 0;
  double passed_s = 0;
  int64_t unsettled_ns = 0, settled_ns = 0, heard_since_ns = kLongAgoNs, last_compared_ns = kLongAgoNs;
  int rounds = 0;  // since the timeline was taken
  int off_rounds = 0, recovering = 0;
  int64_t disputed_since_ns = kLongAgoNs, disputed_ns = kLongAgoNs, chaos_since_ns = 0;
  int64_t contested_ns = kLongAgoNs;  // last: more than may lie contradict us, or each other
  bool split_heard = false;           // more neighbours say so than may lie
  int64_t split_since_ns = kLongAgoNs, split_seen_ns = kLongAgoNs, vouched_ns = kLongAgoNs;
  int64_t going_since_ns = kLongAgoNs;  // another camp is the one to live on
  std::vector<Camp> camps;              // of this round, if it is contested
  double merge_ns = 0;                  // parts of the timeline that were apart are meeting: so far may honest hosts be

  uint64_t timeline = 0, wanted_timeline = 0;
  uint64_t own_timeline = 0;    // that we go back to when nobody tells of another
  uint64_t first_timeline = 0;  // that we have founded
  uint64_t lost_timeline = 0;   // that we lived on when our clock was disrupted
  int64_t wanted_since_ns = 0;

  std::vector<Memory> memories;   // as the views
  std::vector<Peer> peers;        // as the views
  std::vector<uint32_t> voters;   // indices of peers
  std::vector<Opinion> opinions;  // as voters
  std::vector<Opinion> rates;
  std::vector<double> scratch;
  std::vector<Votes> votes;
  std::vector<FleetBound::Told> told;
  std::vector<double> absent_s;
  FleetBound bound;
  bool unmeasured = false;  // most links of a newcomer are yet to be heard
  size_t fleet_size = 0;    // SetMembers
  std::vector<Reference::Told> namers;
  Reference reference;
  uint64_t named_reference = 0;
  Anchors anchors;
  AnchorRecord next_record;
  std::vector<NeighbourVerdict> verdicts;
};

}  // namespace cw::sync
