// SPDX-License-Identifier: Apache-2.0
// What Agreement says of its own errors: the likely one, and the bound.
#include <algorithm>
#include <cmath>

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
// low and high count as these. links: so many of equal weight would make as good a mean.
double Agreement::Impl::ScatterNs2(double low, double high, double& links) const {
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
  links = weights > 0 ? weights * weights / squared_weights : 1;
  if (weights == 0) return 0;
  const double mean = sum / weights;
  const double seen = none ? 0 : links * std::max(0.0, squares / weights - mean * mean);
  // Few links show little of their scatter, so what they say of themselves counts as two more measurements; but not for
  // more than twice what three or more show, because estimators rather say too much.
  double said = link / weights / (kLinkSds * kLinkSds);
  if (links > 2.5) said = std::min(said, 4 * seen / (links - 1));
  return (seen + 2 * said) / (links - 1 + 2);
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
  const auto follow = [this](double& scatter, double now) {
    const bool rises = now > scatter || rounds < 2 * kYoungRounds;
    scatter += (1 - std::exp(-passed_s / (rises ? kScatterRises : kScatterFalls))) * (now - scatter);
    if (!settled) scatter = std::max(scatter, now);
  };
  follow(link_scatter_ns2, ScatterNs2(-HUGE_VAL, HUGE_VAL, effective_n));
  const double share = kept > 0 ? kept / members : 1;
  const double trimmed = kept > 0 ? ScatterNs2(low, high, effective_n) : link_scatter_ns2;
  follow(scatter_ns2, trimmed / (share * share));
  error_ns = kErrorFactor * std::sqrt(scatter_ns2 / (effective_n + 1)) + std::abs(apart_ns) + merge_ns;
  // A crystal that warms bends its clock; all lines through past points end beside it, to the same side.
  error_ns += kLagS2 * std::abs(trend_ppb_s);
  // Rates that have jumped lately will do so again, and nobody notices at once.
  error_ns += change_ppb * kNoticedWithinS;
}

void Agreement::Impl::FindReference(int64_t now_ns, const std::vector<NeighbourView>& views) {
  told.clear();
  if (!settled) return;
  for (const Peer& p : peers) {
    if (!p.comparable || p.reason == Reason::kFalseTicker || p.reason == Reason::kWaiting) continue;
    // A neighbour's line may have bent since it was told.
    const auto slew = static_cast<double>(options.max_slew_ppb);
    const double bend = 0.5 * kBendPpbPerS * p.age_s * (p.age_s + 2 * kRoundS) + options.max_drift_ppb * kToldWithinS;
    const double growth = (options.max_drift_ppb + slew) * p.age_s;
    told.push_back({&views[p.view].claim, std::abs(p.apart_ns) + p.bound_ns, bend, growth});
  }
  // Who hears nobody (yet) is its own reference: the first of a fleet.
  const bool first = !heard_anyone && trouble == FleetTrouble::kIsolated;
  const bool alone = heard_anyone && voters.empty() && !views.empty();
  const bool eligible = (trouble == FleetTrouble::kNone || first) && !alone &&
                        (told.empty() || now_ns - settled_ns >= kReferenceNs || reference.id() == id);
  reference.Update(id, now_ns, time.offset_ns + now_ns, eligible, told,
                   options.max_drift_ppb + static_cast<double>(options.max_slew_ppb));
  if (reference.id() == named_reference) return;
  named_reference = reference.id();
  time.reference = named_reference == id ? self : named_reference == 0 ? "" : HostLabel(named_reference);
  for (const NeighbourView& v : views) {
    if (named_reference != id && v.claim.host_id == named_reference) time.reference = v.name;
  }
}

}  // namespace cw::sync
