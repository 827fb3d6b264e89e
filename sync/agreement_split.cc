// SPDX-License-Identifier: Apache-2.0
// Parts of one timeline that contradict each other: how a split is told, and which part goes over to which.
//
// Who sees all others counts them: the largest part survives, of equal ones that which is ahead. On a sparse graph
// hosts see their neighbours and not the fleet. Majorities of neighbours that follow each other would stand still with
// both parts left, so there the part ahead has the advantage: a host goes forward to it with half of its neighbours,
// and back only with two thirds of them. After a while a third is enough to go forward, so that what is ahead spreads;
// and only who has no more than a third left there goes back to a majority. A few who all know each other would still
// be left, so late a majority is enough for those, too. All hosts see alike which part is ahead, without names that a
// liar could make up.
//
// Liars can be such a part. So nobody goes over to less than a majority unless those who agree with it see a split too:
// neighbours of a victim of liars do not.
#include <algorithm>
#include <cmath>

#include "sync/agreement_impl.h"

namespace cw::sync {
namespace {

constexpr size_t kMostCamps = 8;
constexpr double kCampNs = 100'000;            // others who are twice so near each other are one part
constexpr int64_t kCountedNs = 1'000'000'000;  // so long two thirds of the neighbours take a host back …
constexpr int64_t kLateNs = 2'500'000'000;     // … and after so long a majority does
constexpr int64_t kYoungNs = 5'000'000'000;    // settled for less, it had no time that it could stand by

}  // namespace

// Those who agree with us first, then the others from the largest set on that can be right together.
void Agreement::Impl::FindCamps(const std::vector<NeighbourView>& views) {
  camps.assign(1, {0, 1, 0, {}});
  std::vector<Opinion> rest;
  std::vector<size_t> of_rest;
  const auto add = [&](Camp& camp, size_t k) {
    ++camp.hosts;
    camp.telling += views[peers[voters[k]].view].claim.split;
    camp.voters.push_back(k);
  };
  for (size_t k = 0; k < opinions.size(); ++k) {
    if (std::abs(opinions[k].value) <= opinions[k].tolerance + own_tolerance_ns + merge_ns) {
      add(camps[0], k);
    } else {
      rest.push_back(opinions[k]);
      rest.back().tolerance = std::max(opinions[k].tolerance, kCampNs);
      of_rest.push_back(k);
    }
  }
  while (!rest.empty() && camps.size() < kMostCamps) {
    const Clique clique = FindClique(rest, -1);
    Camp& camp = camps.emplace_back(Camp{clique.low + (clique.high - clique.low) / 2, 0, 0, {}});
    size_t left = 0;
    for (size_t k = 0; k < rest.size(); ++k) {
      if (rest[k].member) {
        add(camp, of_rest[k]);
      } else {
        rest[left] = rest[k];
        of_rest[left++] = of_rest[k];
      }
    }
    if (left == rest.size()) return;
    rest.resize(left);
    of_rest.resize(left);
  }
}

// Do those who agree with us see the split as well? Once they have, it is one until it is over.
void Agreement::Impl::VouchForSplit(int64_t now_ns) {
  const Camp& ours = camps[0];
  const int others = ours.hosts - 1;
  if (split_heard || (others > 0 && 2 * ours.telling >= others)) vouched_ns = now_ns;
}

// The part to live on: an index into camps, 0 for ours.
size_t Agreement::Impl::ChooseCamp(int64_t now_ns) const {
  const int n = static_cast<int>(voters.size());
  const bool vouched = now_ns - vouched_ns < kSplitNs, counts = now_ns - split_since_ns < kCountedNs;
  const bool left = camps[0].hosts - 1 <= std::max(1, Liars(n)), late = now_ns - split_since_ns > kLateNs;
  const bool all_seen = memories.size() + 1 >= fleet_size;
  size_t best = 0;
  for (size_t i = 1; i < camps.size(); ++i) {
    const Camp &c = camps[i], &b = camps[best];
    const bool ahead = c.apart_ns > b.apart_ns;
    if (c.hosts <= std::max(1, Liars(n))) continue;
    const bool majority = 2 * c.hosts > n;
    if (!vouched && !majority) continue;
    const bool larger = c.hosts > b.hosts || (c.hosts == b.hosts && ahead);
    const bool forward = ahead && (!counts || c.hosts >= n / 2);
    const bool back = !ahead && (counts ? 3 * c.hosts >= 2 * n : majority && (left || late));
    if (!vouched || all_seen ? larger : forward || back) best = i;
  }
  return best;
}

// Who agrees with most of his neighbours may yet live in a part of the fleet: where more of them than may lie are off
// or tell of others who are.
bool Agreement::Impl::SeesSplit(int64_t now_ns, const std::vector<NeighbourView>& views) const {
  if (now_ns - split_seen_ns < kDisputeNs && now_ns - vouched_ns < kSplitNs) return true;
  int all = 0, signs = 0, telling = 0;
  for (const Peer& p : peers) {
    if (!p.comparable) continue;
    const bool tells = views[p.view].claim.split;
    ++all;
    telling += tells;
    signs += tells || p.reason == Reason::kFalseTicker || p.reason == Reason::kWaiting;
  }
  return telling > 1 && signs > std::max(1, Liars(all));  // one may be a victim of the liars that we see
}

// More contradict each other than may lie, or a majority that is none without those.
void Agreement::Impl::Contest(int64_t now_ns, const std::vector<NeighbourView>& views, const Clique& clique) {
  contested_ns = unsteady_ns = now_ns;
  if (now_ns - split_seen_ns > kSplitNs) split_since_ns = now_ns;
  split_seen_ns = now_ns;
  FindCamps(views);
  VouchForSplit(now_ns);
  const size_t to = ChooseCamp(now_ns);
  if (to == 0) going_since_ns = kLongAgoNs;
  if (to != 0 && going_since_ns == kLongAgoNs) going_since_ns = now_ns;
  if (to != 0 && now_ns - going_since_ns >= hold_ns / 2) return GoOver(now_ns, camps[to]);
  Dispute(now_ns, clique);
  if (now_ns - vouched_ns < kSplitNs) {
    // While a fleet starts small parts and liars can hold each other in balance. Those who refuse then stand by
    // nothing, and look for the time of those who do not. Who had a time before keeps it: it may be liars who refuse
    // it.
    const bool young = split_since_ns - settled_ns < kYoungNs;
    if (young && now_ns - split_since_ns > kStuckNs + hold_ns) return Unsettle(now_ns, FleetTrouble::kSettling);
    trouble = FleetTrouble::kSplit;
    KeepTogether();
  }
  double furthest = 0;
  for (const Camp& c : camps) {
    if (c.hosts > Liars(static_cast<int>(voters.size()))) furthest = std::max(furthest, std::abs(c.apart_ns));
  }
  error_ns = std::max(error_ns, furthest);
}

// Each part goes on as one: its hosts follow each other.
void Agreement::Impl::KeepTogether() {
  if (camps[0].voters.empty()) return;
  for (Opinion& o : opinions) o.member = false;
  for (const size_t k : camps[0].voters) opinions[k].member = peers[voters[k]].member = true;
  const int f = MostLiars(static_cast<int>(camps[0].voters.size()));
  const double apart_ns = TrimmedMean(opinions, f);
  FollowRate(f, 0);
  Slew(apart_ns);
  MeasureError(apart_ns);
}

// A step to the part that survives, with a new epoch. Those who live there were right, and we were wrong.
void Agreement::Impl::GoOver(int64_t now_ns, const Camp& camp) {
  for (Opinion& o : opinions) o.member = false;
  for (const size_t k : camp.voters) {
    opinions[k].member = peers[voters[k]].member = true;
    peers[voters[k]].reason = Reason::kUsed;
  }
  const double apart_ns = TrimmedMean(opinions, 0);
  StepTo(now_ns, apart_ns);
  trouble = FleetTrouble::kMerging;
  going_since_ns = kLongAgoNs;
}

// Neighbours see a split that we may not see: more of them than may lie.
void Agreement::Impl::HearSplit(int64_t now_ns, const std::vector<NeighbourView>& views) {
  int all = 0, telling = 0;
  for (const Peer& p : peers) {
    if (!p.comparable) continue;
    ++all;
    telling += views[p.view].claim.split;
  }
  split_heard = telling > std::max(1, Liars(all));
  if (!split_heard) return;
  vouched_ns = now_ns;
  if (now_ns - split_seen_ns > kSplitNs) split_since_ns = now_ns;
  split_seen_ns = now_ns;
}

}  // namespace cw::sync
