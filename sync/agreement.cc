// SPDX-License-Identifier: Apache-2.0
#include "sync/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "sync/agreement_impl.h"
#include "sync/neighbours.h"

namespace cw::sync {

Agreement::Impl::Impl(std::string self_name, uint64_t seed, const AgreementOptions& with)
    : options(with), self(std::move(self_name)), id(HostId(self)) {
  // Hosts that would leave a timeline at the same moment do it one after the other.
  hold_ns = kTimelineHoldNs + static_cast<int64_t>((id ^ seed) % static_cast<uint64_t>(kTimelineHoldNs));
}

void Agreement::Impl::Begin(int64_t now_ns) {
  if (!started) {
    started = true;
    unsettled_ns = last_ns = time.anchor_ns = now_ns;
    timeline = own_timeline = first_timeline = NewTimeline(now_ns);
  }
  if (now_ns < last_ns) Disrupt(now_ns);  // the local clock was set back
  split_heard = false;
  passed_s = std::min(1.0, static_cast<double>(now_ns - last_ns) * 1e-9);
  last_ns = now_ns;
  MoveAnchor(now_ns);
  anchors.Advance(now_ns);
}

// The same line, told from another point of it. The part below a nanosecond is kept, so that hours of rounds add up.
void Agreement::Impl::MoveAnchor(int64_t now_ns) {
  fraction_ns += time.slope_ppb * 1e-9 * static_cast<double>(now_ns - time.anchor_ns);
  const double whole = std::floor(fraction_ns);
  time.offset_ns += static_cast<int64_t>(whole);
  fraction_ns -= whole;
  time.anchor_ns = now_ns;
}

void Agreement::Impl::StepBy(double ns) {
  const int64_t whole = std::llround(ns);
  time.offset_ns += whole;
  anchors.Stepped(whole);
  for (Peer& p : peers) p.apart_ns -= static_cast<double>(whole);
}

void Agreement::Impl::Unsettle(int64_t now_ns, FleetTrouble why) {
  settled = false;
  unsettled_ns = now_ns;
  rounds = 0;
  trouble = why;
  merge_ns = 0;
  off_rounds = recovering = 0;
  disputed_since_ns = kLongAgoNs;
  reference.Reset();
  bound.Reset();
}

void Agreement::Impl::Disrupt(int64_t now_ns) {
  last_ns = time.anchor_ns = now_ns;
  time.slope_ppb = rate_ppb;
  if (settled || lost_timeline == 0) lost_timeline = timeline;
  own_timeline = NextTimeline(now_ns);
  disrupted_alone = true;
  Unsettle(now_ns, FleetTrouble::kDisrupted);
}

void Agreement::Impl::Settle(int64_t now_ns) {
  settled = true;
  joined = false;
  settled_ns = last_compared_ns = now_ns;
  trouble = FleetTrouble::kNone;
  disrupted_alone = false;
  own_timeline = timeline;
  merge_ns = trend_ppb_s = slew_ppb = rate_step_ppb = 0;
  ++time.epoch;
  for (Memory& m : memories) m.returning = false;
}

// Not settled: fleet time is stepped towards the others, each round by less, until it is near enough.
void Agreement::Impl::Acquire(int64_t now_ns, const std::vector<NeighbourView>& views) {
  ChooseTimeline(now_ns);
  SelectForAcquiring(views);
  if (voters.empty()) {
    const bool alone = votes.empty() && (views.empty() || now_ns - unsettled_ns >= kListenNs);
    if (!alone) return;
    if (disrupted_alone) timeline = first_timeline = NextTimeline(now_ns);
    error_ns = 0;
    Settle(now_ns);
    if (!views.empty()) trouble = FleetTrouble::kIsolated;
    return;
  }
  heard_anyone = true;
  const Clique clique = Judge(-1);
  const int n = static_cast<int>(voters.size());
  const int outside = n - clique.members;
  // While the neighbours are far apart, liars pull a mean between the honest and themselves, for good. A median takes
  // one side, and soon all are on the same.
  const bool far_apart = 2 * clique.members <= n || spread_ns > kNearErrors * usual_error_ns;
  const double apart_ns = far_apart ? median_ns : TrimmedMean(opinions, std::max(0, MostLiars(n) - outside));
  const double rate = MeanRate(std::max(0, MostLiars(n) - outside));
  double gain = options.first_gain * std::max(kAcquireGain, 1.0 / (rounds + 1));
  if (far_apart) gain = options.first_gain;
  rate_ppb = ClampRate(rate_ppb + gain * rate);
  time.slope_ppb = rate_ppb;
  StepBy(gain * apart_ns);
  MeasureError(apart_ns * (1 - gain));
  ++rounds;
  if (!far_apart && outside <= Liars(n) && NearEnough(now_ns, apart_ns)) Settle(now_ns);
}

bool Agreement::Impl::NearEnough(int64_t now_ns, double apart_ns) const {
  bool joining = false;
  int heard = 0, with_us = 0;
  for (const Votes& v : votes) {
    heard += v.heard;
    if (v.timeline != timeline) continue;
    with_us = v.heard;
    joining = v.synchronised > 0;
  }
  if (std::abs(apart_ns) > kNearErrors * usual_error_ns) return false;
  if (rounds < (joining ? kJoinRounds : kFoundRounds)) return false;
  // A timeline that no majority lives on may be a lie: whoever is on it tells no time.
  if (2 * with_us <= heard) return false;
  if (now_ns - unsettled_ns >= kPatienceNs) return true;
  const auto good = std::count_if(voters.begin(), voters.end(), [this](uint32_t v) { return peers[v].link_settled; });
  if (2 * static_cast<size_t>(good) <= voters.size()) return false;  // a line that is young may be microseconds off
  if (!joining && now_ns - heard_since_ns < kFoundNs) return false;
  return 3 * with_us >= 2 * heard;
}

// Settled: fleet time is slewed towards the others; only after a step of the local clock is it stepped.
void Agreement::Impl::Follow(int64_t now_ns, const std::vector<NeighbourView>& views) {
  SelectForFollowing(now_ns);
  HearSplit(now_ns, views);
  if (voters.empty()) {
    trend_ppb_s = 0;
    Slew(0);
    // Who has no neighbours at all is the fleet.
    if (views.empty()) {
      joined = true;
      trouble = FleetTrouble::kNone;
      return;
    }
    // What a clock does without help, beside its bound: a part in a million.
    error_ns += kFreeRunPpb * passed_s;
    if (now_ns - last_compared_ns > kIsolatedNs) trouble = FleetTrouble::kIsolated;
    return;
  }
  heard_anyone = true;
  last_compared_ns = now_ns;
  const Clique clique = Judge(own_tolerance_ns);
  const int n = static_cast<int>(voters.size());
  const bool clear = n - clique.members <= Liars(n);
  if (!joined && !Join(now_ns, Liars(HeardWithUs(views)), clear && clique.with_us ? clique.members : 0)) return;
  if (n == 1) return FollowOne(now_ns, views);
  if (clear) return clique.with_us ? Agree(now_ns, views) : Rejoin(now_ns);
  Contest(now_ns, views, clique);
}

// How many are heard on our timeline, with a time or looking for it.
int Agreement::Impl::HeardWithUs(const std::vector<NeighbourView>& views) const {
  return static_cast<int>(std::count_if(peers.begin(), peers.end(), [&](const Peer& p) {
    return p.error_ns > 0 && views[p.view].claim.timeline == timeline;
  }));
}

// We have settled just now. False: whom we hear may all be liars, so nobody is followed, or we look for a time anew.
bool Agreement::Impl::Join(int64_t now_ns, int liars, int agreeing) {
  joined = agreeing > liars;
  if (joined) return true;
  // Liars can agree with us alone and keep us from the others, to whom they tell another time.
  if (now_ns - settled_ns > kStuckNs + hold_ns) {
    Unsettle(now_ns, FleetTrouble::kSettling);
    return false;
  }
  if (static_cast<int>(voters.size()) > liars) return true;
  for (const uint32_t v : voters) {
    peers[v].member = false;
    peers[v].weight = 0;
    peers[v].reason = Reason::kWaiting;
  }
  trouble = FleetTrouble::kNone;
  error_ns += kFreeRunPpb * passed_s;
  Slew(0);
  return false;
}

void Agreement::Impl::Agree(int64_t now_ns, const std::vector<NeighbourView>& views) {
  off_rounds = 0;
  const int n = static_cast<int>(voters.size());
  Remember(now_ns);
  const int f = std::max(0, MostLiars(n) - Excluded());
  const double apart_ns = TrimmedMean(opinions, f);
  FollowRate(f, ImplausibleRate(views));
  const double left_ns = apart_ns - MakeGood(now_ns, apart_ns);
  if (merge_ns > 0 || std::abs(left_ns) > kClearNoises * (MeanNoise() + 1)) unsteady_ns = now_ns;
  Slew(left_ns + kLagOffsetS2 * SteadyTrend());
  MeasureError(left_ns);
  ++rounds;
  if (recovering > 0) --recovering;
  if (disputed_since_ns != kLongAgoNs && now_ns - disputed_ns >= kReconciledNs) disputed_since_ns = kLongAgoNs;
  if (disputed_since_ns == kLongAgoNs && recovering == 0) trouble = FleetTrouble::kNone;
  if (SeesSplit(now_ns, views)) trouble = FleetTrouble::kSplit;
}

// Most of the others agree with each other and not with us: it is our clock that was stepped, or ran off.
void Agreement::Impl::Rejoin(int64_t now_ns) {
  unsteady_ns = now_ns;
  const double apart_ns = TrimmedMean(opinions, 0);
  if (++off_rounds < kOffRounds) return Slew(0);
  FollowRate(0, 0);
  if (!own_step && std::abs(apart_ns) < kSlewableNs) {
    off_rounds = 0;
    MeasureError(apart_ns);
    rounds = std::min(rounds, kYoungRounds);
    return Slew(apart_ns);
  }
  StepTo(now_ns, apart_ns);
  trouble = FleetTrouble::kDisrupted;
}

// A new epoch, with those who are members: they were right.
void Agreement::Impl::StepTo(int64_t now_ns, double apart_ns) {
  off_rounds = 0;
  unsteady_ns = now_ns;
  MeasureError(apart_ns);
  rounds = std::min(rounds, kYoungRounds);
  for (size_t k = 0; k < voters.size(); ++k) {
    Memory& m = memories[voters[k]];
    if (!opinions[k].member) continue;
    m.quarantined_until_ns = kLongAgoNs;
    m.wrong = 0;
    m.returning = false;
  }
  StepBy(apart_ns);
  slew_ppb = rate_step_ppb = 0;
  Slew(0);
  ++time.epoch;
  recovering = kOffRounds;
  disputed_since_ns = kLongAgoNs;
  last_compared_ns = now_ns;
}

// One neighbour only: nobody can tell which of two clocks was stepped, so the host of the higher id follows. What the
// link's own error explains is no step.
void Agreement::Impl::FollowOne(int64_t now_ns, const std::vector<NeighbourView>& views) {
  if (now_ns < memories[voters[0]].quarantined_until_ns) return Slew(0);  // better none than a liar
  opinions[0].member = true;
  Peer& p = peers[voters[0]];
  p.member = true;
  if (std::abs(p.apart_ns) < std::max(kSlewableNs, p.tolerance_ns + own_tolerance_ns)) return Agree(now_ns, views);
  if (id > views[p.view].claim.host_id) return Rejoin(now_ns);
  Slew(0);
}

// More contradict each other than can be told apart. Following the wrong half would be worse than following none.
void Agreement::Impl::Dispute(int64_t now_ns, const Clique& clique) {
  off_rounds = 0;
  disputed_ns = now_ns;
  if (disputed_since_ns == kLongAgoNs) disputed_since_ns = chaos_since_ns = now_ns;
  if (now_ns - disputed_since_ns >= kDisputeNs) trouble = FleetTrouble::kDisputed;
  error_ns += kFreeRunPpb * passed_s;
  Slew(0);
  // Not two camps but none that holds half of us: there is nothing to stand by, so all look for each other afresh.
  if (2 * (clique.members + 1) >= static_cast<int>(voters.size()) + 1) chaos_since_ns = now_ns;
  if (now_ns - chaos_since_ns >= kChaosNs) Unsettle(now_ns, FleetTrouble::kSettling);
}

void Agreement::Impl::HearAnchors(const std::vector<NeighbourView>& views, const AnchorReading& own) {
  anchors.SlopeIs(time.slope_ppb);
  if (own.has && settled) {
    anchors.AddOwn(id, own, time.ToFleetNs(own.local_ns));
  }
  for (const Peer& p : peers) {
    const AnchorRecord& r = views[p.view].claim.anchor;
    if (r.anchor_id == 0 || !p.comparable || p.reason == Reason::kFalseTicker || !settled) continue;
    anchors.Add(id, r, std::llround(p.age_s * 1e9), p.apart_ns, p.bound_ns);
  }
  anchors.Judge();
  next_record = anchors.Next();
}

void Agreement::Impl::Publish(const std::vector<NeighbourView>& views) {
  time.trouble = settled ? trouble : trouble == FleetTrouble::kDisrupted ? trouble : FleetTrouble::kSettling;
  time.state = SyncState::kUnknown;
  if (settled && time.trouble == FleetTrouble::kNone) time.state = SyncState::kSynchronised;
  if (settled && time.trouble == FleetTrouble::kIsolated) time.state = SyncState::kFreeRunning;
  // Others may take this time over; but nobody vouches for it yet.
  const bool unvouched = settled && !joined && HeardWithUs(views) > 0;
  if (time.state == SyncState::kSynchronised && unvouched) {
    time.state = SyncState::kFreeRunning;
    time.trouble = FleetTrouble::kSettling;
  }
  if (time.state == SyncState::kSynchronised && merge_ns > 0) time.trouble = FleetTrouble::kMerging;
  time.bound_ns =
      std::llround(settled && !unvouched && !unmeasured ? bound.bound_ns(BoundHops()) : kNowhereNs) + local_bound_ns;
  // What scatters is an estimate, what bounds is proven: nothing is likely that surely is not.
  time.error_est_ns = std::min<int64_t>(std::llround(std::min(error_ns, kNowhereNs)) + local_likely_ns, time.bound_ns);
  time.error_drift_ppb = ErrorDriftPpb();
  verdicts.resize(views.size());
  double weights = 0;
  for (const Peer& p : peers) weights += p.weight;
  for (size_t i = 0; i < views.size(); ++i) {
    NeighbourVerdict& v = verdicts[i];
    if (v.name != views[i].name) v.name = views[i].name;
    const Peer& p = peers[i];
    v.reason = p.reason;
    v.disagreement_ns = p.heard ? p.apart_ns : 0;
    v.weight = weights > 0 ? p.weight / weights : 0;
    v.anchor = anchors.VerdictOf(views[i].claim.host_id);
  }
}

FleetClaim Agreement::Impl::Claim() const {
  FleetClaim c;
  c.host_id = id;
  // Not before we have taken over its time.
  if (settled || rounds > 0 || timeline == first_timeline) c.timeline = timeline;
  // Who refuses still has a time that others may judge; otherwise one host's doubt would spread.
  c.state = time.state;
  const bool refuses =
      trouble == FleetTrouble::kDisputed || trouble == FleetTrouble::kSplit || trouble == FleetTrouble::kMerging;
  if (settled && refuses) c.state = SyncState::kFreeRunning;
  c.split = settled && last_ns - contested_ns < kToldSplitNs;
  c.anchor_ns = time.anchor_ns;
  c.offset_ns = time.offset_ns;
  c.slope_ppb = time.slope_ppb;
  c.error_est_ns = time.error_est_ns;
  if (settled) {
    c.reference_id = reference.id();
    c.reference_seq = reference.seq();
    c.width_ns = std::llround(bound.width_ns()) + local_bound_ns;
    c.hops = reference.hops();
  }
  if (anchors.known()) {
    c.tai_offset_ns = anchors.offset_ns();
    c.tai_bound_ns = anchors.bound_ns();
    c.tai_hops = anchors.hops();
  }
  c.rate_ppb = rate_ppb;
  c.anchor = next_record;
  return c;
}

Agreement::Agreement(std::string self, uint64_t seed, const AgreementOptions& options)
    : impl_(std::make_unique<Impl>(std::move(self), seed, options)) {}
Agreement::~Agreement() = default;
Agreement::Agreement(Agreement&&) noexcept = default;

const FleetTime& Agreement::Update(int64_t now_ns, const std::vector<NeighbourView>& neighbours,
                                   const AnchorReading& anchor) {
  Impl& a = *impl_;
  a.Begin(now_ns);
  a.Assess(now_ns, neighbours);
  a.CountTimelines(neighbours);
  if (a.settled && a.LeaveTimeline(now_ns)) a.Assess(now_ns, neighbours);
  if (a.settled) {
    a.Follow(now_ns, neighbours);
  } else {
    a.Acquire(now_ns, neighbours);
  }
  a.MeasureBound(now_ns);
  a.FindReference(now_ns, neighbours);
  a.HearAnchors(neighbours, anchor);
  a.Publish(neighbours);
  return a.time;
}

void Agreement::SetMembers(size_t members) { impl_->fleet_size = members; }
double Agreement::width_ns() const { return impl_->bound.width_ns(); }
double Agreement::bound_ns() const { return impl_->bound.bound_ns(impl_->BoundHops()); }
int Agreement::bound_hops() const { return impl_->BoundHops(); }
int Agreement::most_liars() const { return impl_->Liars(static_cast<int>(impl_->told.size())); }

void Agreement::SetLocalError(int64_t likely_ns, int64_t bound_ns) {
  impl_->local_likely_ns = std::llabs(likely_ns);
  impl_->local_bound_ns = bound_ns;
}

bool Agreement::RateJumped(int64_t now_ns, const std::vector<NeighbourView>& neighbours) {
  return impl_->RateJumped(now_ns, neighbours);
}

const FleetTime& Agreement::now() const { return impl_->time; }
FleetClaim Agreement::Claim() const { return impl_->Claim(); }
const std::vector<NeighbourVerdict>& Agreement::verdicts() const { return impl_->verdicts; }
const std::vector<AnchorVerdict>& Agreement::anchors() const { return impl_->anchors.verdicts(); }

TaiTime Agreement::tai() const {
  const Anchors& a = impl_->anchors;
  if (!a.known()) return {};
  const FleetTime& t = impl_->time;
  return {true, t.anchor_ns + t.offset_ns, a.offset_ns(), a.slope_ppb(), a.bound_ns(), a.hops()};
}

int64_t TaiTime::ToTaiNs(int64_t at_fleet_ns) const {
  return at_fleet_ns + offset_ns + std::llround(slope_ppb * 1e-9 * static_cast<double>(at_fleet_ns - fleet_ns));
}

void Agreement::Disrupted(int64_t now_ns) {
  impl_->Disrupt(now_ns);
  impl_->Publish({});
}

}  // namespace cw::sync
