// SPDX-License-Identifier: Apache-2.0
// What Agreement says of its own errors: the likely one, and the bound.
#include <algorithm>
#include <cmath>
#include <functional>

#include "sync/agreement_impl.h"
#include "sync/neighbours.h"

namespace cw::sync {

// Likely error of the neighbours' mean: what the links say of themselves, or what the neighbours have shown lately.
double Agreement::Impl::MeanNoise() const {
  double squares = 0, weights = 0;
  for (size_t k = 0; k < voters.size(); ++k) {
    const Peer& p = peers[voters[k]];
    if (!opinions[k].member || opinions[k].trimmed) continue;
    squares += opinions[k].weight * opinions[k].weight * p.error_ns * p.error_ns / (kLinkSds * kLinkSds);
    weights += opinions[k].weight;
  }
  const double shown = std::sqrt(scatter_ns2 / effective_n);
  return weights > 0 ? std::min(shown, std::sqrt(squares) / weights) : shown;
}

// Of single links, as deviations of the neighbours' fleet times from their mean, each as it weighs there; those beyond
// low and high count as these.
Agreement::Impl::Scatter Agreement::Impl::ScatterOf(double low, double high) const {
  const auto counts = [this](size_t k) { return opinions[k].member && peers[voters[k]].reason != Reason::kDistant; };
  bool none = true;
  for (size_t k = 0; k < voters.size(); ++k) none &= !counts(k);
  double sum = 0, squares = 0, link = 0, weights = 0, squared_weights = 0;
  for (size_t k = 0; k < voters.size(); ++k) {
    const Peer& p = peers[voters[k]];
    if (!none && !counts(k)) continue;
    const double weight = std::max(opinions[k].weight, kNoWeight), value = std::clamp(p.apart_ns, low, high);
    sum += weight * value;
    squares += weight * value * value;
    link += weight * p.error_ns * p.error_ns;
    weights += weight;
    squared_weights += weight * weight;
  }
  Scatter s;
  if (weights == 0) return s;
  s.links = weights * weights / squared_weights;
  const double mean = sum / weights;
  s.seen_ns2 = none ? 0 : s.links * std::max(0.0, squares / weights - mean * mean);
  s.said_ns2 = link / weights / (kLinkSds * kLinkSds);
  return s;
}

// Few links show little of their scatter, so what they say of themselves counts as two more measurements; but not for
// more than twice what three or more show, because estimators rather say too much.
double Agreement::Impl::Scatter::Ns2(double most_said_ns2) const {
  double said = std::min(said_ns2, most_said_ns2);
  if (links > 2.5) said = std::min(said, 4 * seen_ns2 / (links - 1));
  return (seen_ns2 + 2 * said) / (links - 1 + 2);
}

// What links have really scattered by over seconds. Two neighbours hardly show it in a round, but do in many.
void Agreement::Impl::LearnScatter(const Scatter& now) {
  if (!settled || rounds < 2 * kYoungRounds) {
    shown_ns2 = shown_links = shown_for_s = 0;
    return;
  }
  const bool rises = now.seen_ns2 * shown_links > shown_ns2 * (now.links - 1);
  const double gain = std::max(1 - std::exp(-passed_s / (rises ? kShownRises : kShownFalls)),
                               passed_s / (shown_for_s + passed_s + 1e-9));
  shown_ns2 += gain * (now.seen_ns2 - shown_ns2);
  shown_links += gain * (now.links - 1 - shown_links);
  shown_for_s += passed_s * std::min(1.0, now.links - 1);
}

// The most that a link's word is worth beside that. Nobody who has one neighbour can know.
double Agreement::Impl::MostSaidNs2() const {
  if (shown_for_s < kShownForS || shown_links < kLeastShownLinks) return HUGE_VAL;
  return kShownMargin * shown_ns2 / shown_links;
}

// What scatter does not show: all links of a rack may have become longer one way, and its hosts follow each other.
// Round trips show that they have changed, if not which way. Who may lie can hold up replies, so the largest f do not
// count; where more than f links have changed it is no matter of single ones.
double Agreement::Impl::ChangedNs() {
  scratch.clear();
  for (size_t k = 0; k < voters.size(); ++k) {
    if (opinions[k].member) scratch.push_back(peers[voters[k]].changed_ns);
  }
  if (scratch.empty()) return 0;
  const auto at = scratch.begin() + Liars(static_cast<int>(scratch.size()));
  std::nth_element(scratch.begin(), at, scratch.end(), std::greater<>());
  return *at;
}

// How well single links measure shows how well their mean does: by √n better; where the extremes are trimmed, by their
// scatter with those taken for the last that are not (Tukey and McLaughlin). See docs/clock.md for the factor.
void Agreement::Impl::MeasureError(double apart_ns) {
  double low = HUGE_VAL, high = -HUGE_VAL, members = 0, kept = 0;
  for (size_t k = 0; k < voters.size(); ++k) {
    members += opinions[k].member;
    if (!opinions[k].member || opinions[k].trimmed) continue;
    ++kept;
    low = std::min(low, peers[voters[k]].apart_ns);
    high = std::max(high, peers[voters[k]].apart_ns);
  }
  const auto follow = [this](double& scatter, double now, double clearly = 1) {
    const bool rises = now > clearly * scatter || rounds < 2 * kYoungRounds;
    scatter += (1 - std::exp(-passed_s / (rises ? kScatterRises : kScatterFalls))) * (now - scatter);
    if (!settled) scatter = std::max(scatter, now);
  };
  const Scatter all = ScatterOf(-HUGE_VAL, HUGE_VAL);
  LearnScatter(all);
  follow(link_scatter_ns2, all.Ns2(HUGE_VAL));
  const double share = kept > 0 ? kept / members : 1;
  const Scatter trimmed = kept > 0 ? ScatterOf(low, high) : all;
  effective_n = trimmed.links;
  follow(scatter_ns2, trimmed.Ns2(HUGE_VAL) / (share * share));
  // What few show varies by chance alone: following each rise at once would keep it far above its mean.
  const double others = std::max(trimmed.links - 1, 0.1);
  const double clearly = std::min(kClearRise, 1 + 4 / (others * others));
  follow(likely_scatter_ns2, trimmed.Ns2(MostSaidNs2()) / (share * share), clearly);
  // Far parts of a fleet are further apart than neighbours show; who has less than the least degree sees all of it.
  const double factor = memories.size() < static_cast<size_t>(kLeastDegree) ? kWholeFleetFactor : kErrorFactor;
  error_ns = factor * std::sqrt(likely_scatter_ns2 / (effective_n + 1)) + std::abs(apart_ns) + merge_ns;
  // A crystal that warms bends its clock; all lines through past points end beside it, to the same side.
  error_ns += kLagS2 * std::abs(trend_ppb_s);
  error_ns += ChangedNs();
  // Rates that have jumped lately will do so again, and nobody notices at once.
  error_ns += change_ppb * kNoticedWithinS;
}

double Agreement::Impl::ErrorDriftPpb() const {
  if (time.state != SyncState::kSynchronised) return kFreeRunPpb;
  const double likely = kHeldPpb + kHeldRateNoises * rate_noise_ppb + kHeldTrendS * std::abs(trend_ppb_s) + change_ppb;
  return std::min(kFreeRunPpb, likely);
}

// All neighbours count that tell a time on our timeline, those beyond their tolerance and those just stepped as well:
// up to so many as may lie are left out anyway, and what more of them show is true.
void Agreement::Impl::MeasureBound(int64_t now_ns) {
  if (!settled) return;
  told.clear();
  absent_s.clear();
  int unheard = 0;
  for (const Peer& p : peers) {
    unheard += memories[p.view].comparable_ns == kLongAgoNs;
    // Who looks for the time will come as near to us as its link can tell.
    const bool coming = p.error_ns > 0 && !p.comparable && p.reason != Reason::kTimeline;
    if (!p.comparable && !coming) {
      const int64_t last = std::max(memories[p.view].comparable_ns, settled_ns);
      absent_s.push_back(static_cast<double>(now_ns - last) * 1e-9);
      continue;
    }
    // A neighbour's line may have bent since it was told, and, where rates jump, been stepped.
    const double bend = 0.5 * kBendPpbPerS * p.age_s * (p.age_s + 2 * kRoundS) + options.max_drift_ppb * kToldWithinS +
                        change_ppb * kNoticedWithinS;
    const double apart = coming ? 0 : std::abs(p.apart_ns) + kHeardAfterS * std::abs(p.rate_ppb);
    told.push_back({apart + p.bound_ns + bend, p.width_ns});
  }
  bound.Update(passed_s, told, Liars(static_cast<int>(told.size())), absent_s, GrowthPpb());
  // At the start links are measured one after the other, the long ones last, and who is not settled tells no width.
  const int down = std::max(1, MostLiars(static_cast<int>(peers.size())));
  unmeasured = unheard > down && now_ns - settled_ns < kReferenceNs;
}

void Agreement::Impl::FindReference(int64_t now_ns, const std::vector<NeighbourView>& views) {
  namers.clear();
  if (!settled) return;
  for (const Peer& p : peers) {
    if (!p.comparable || p.reason == Reason::kFalseTicker || p.reason == Reason::kWaiting) continue;
    namers.push_back({&views[p.view].claim, p.age_s});
  }
  // Who hears nobody (yet) is its own reference: the first of a fleet.
  const bool first = !heard_anyone && trouble == FleetTrouble::kIsolated;
  const bool alone = heard_anyone && voters.empty() && !views.empty();
  const bool eligible = (trouble == FleetTrouble::kNone || first) && !alone &&
                        (namers.empty() || now_ns - settled_ns >= kReferenceNs || reference.id() == id);
  reference.Update(id, now_ns, time.offset_ns + now_ns, eligible, namers);
  if (reference.id() == named_reference) return;
  named_reference = reference.id();
  time.reference = named_reference == id ? self : named_reference == 0 ? "" : HostLabel(named_reference);
  for (const NeighbourView& v : views) {
    if (named_reference != id && v.claim.host_id == named_reference) time.reference = v.name;
  }
}

}  // namespace cw::sync
