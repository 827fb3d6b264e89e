// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sync_swarm.h"

#include <algorithm>
#include <cmath>

#include "sync/neighbours.h"

namespace cw::sync {
namespace {

constexpr double kFoundAfterS = 0.3;     // a link shows a step so late
constexpr double kMeasuredAfterS = 0.3;  // a link needs so long to be measured
constexpr double kNoiseTimeS = 1;
constexpr double kSlopeNoisePpb = 15;

}  // namespace

Swarm::Swarm(const SwarmSpec& spec) : spec_(spec), random_(spec.seed) {
  std::uniform_real_distribution<double> symmetric(-1, 1), round(0, 0.1);
  const auto n = static_cast<size_t>(spec.hosts);
  hosts.resize(n);
  noise_.resize(n * n);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < n; ++i) {
    Host& h = hosts[i];
    h.name = "h" + std::to_string(i);
    h.offset_ns = spec.offset_ns * symmetric(random_);
    h.drift_ppb = 1000 * spec.drift_ppm * symmetric(random_);
    h.drift_since_s = now_s_;
    h.next_s = now_s_ + round(random_);
    h.started_s = now_s_;
    h.agreement = std::make_unique<Agreement>(h.name, spec.seed);
    h.agreement->SetMembers(n);
    ids.push_back(HostId(h.name));
  }
  for (Noise& x : noise_) x.asymmetry = spec.asymmetry_ns * symmetric(random_);
  const auto chosen = ChooseAllNeighbours(ids, spec.seed);
  for (size_t i = 0; i < n; ++i) hosts[i].peers = chosen[i];
}

double Swarm::LocalError(size_t i) const {
  const Host& h = hosts[i];
  return h.offset_ns + h.drifted_ns + h.drift_ppb * (now_s_ - h.drift_since_s);
}

int64_t Swarm::Local(size_t i) const { return std::llround(now_s_ * 1e9 + LocalError(i)); }

double Swarm::Fleet(size_t i) const {
  const FleetTime& t = Time(i);
  const auto since = static_cast<double>(Local(i) - t.anchor_ns);
  return LocalError(i) + static_cast<double>(t.offset_ns) + t.slope_ppb * 1e-9 * since;
}

double Swarm::Spread(const std::function<bool(size_t)>& of) const {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!hosts[i].up || (of && !of(i))) continue;
    low = std::min(low, Fleet(i));
    high = std::max(high, Fleet(i));
  }
  return high - low;
}

bool Swarm::All(SyncState state) const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const Host& h) { return !h.up || h.agreement->now().state == state; });
}

Reason Swarm::Verdict(size_t of, size_t about) const {
  for (const NeighbourVerdict& v : hosts[of].agreement->verdicts()) {
    if (v.name == hosts[about].name) return v.reason;
  }
  return Reason::kStale;
}

void Swarm::Step(size_t i, double ns) {
  hosts[i].offset_ns += ns;
  hosts[i].step_ns = ns;
  hosts[i].stepped_s = now_s_;
  ++hosts[i].steps;
}

void Swarm::SetDrift(size_t i, double ppm) {
  Host& h = hosts[i];
  h.drifted_ns += h.drift_ppb * (now_s_ - h.drift_since_s);
  h.drift_since_s = now_s_;
  h.drift_ppb = 1000 * ppm;
}

void Swarm::Restart(size_t i) {
  Host& h = hosts[i];
  h.agreement = std::make_unique<Agreement>(h.name, spec_.seed + 1);
  h.agreement->SetMembers(hosts.size());
  h.said.clear();
  h.up = true;
  h.started_s = now_s_;
  h.next_s = now_s_;
}

void Swarm::Run(double seconds, const std::function<void(size_t)>& each) {
  const double end_s = now_s_ + seconds;
  std::uniform_real_distribution<double> late(0.1, 0.105);
  while (true) {
    size_t next = hosts.size();
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i].up && (next == hosts.size() || hosts[i].next_s < hosts[next].next_s)) next = i;
    }
    if (next == hosts.size() || hosts[next].next_s > end_s) break;
    now_s_ = std::max(now_s_, hosts[next].next_s);
    Round(next);
    hosts[next].next_s += late(random_);
    if (each) each(next);
  }
  now_s_ = end_s;
}

Swarm::Noise& Swarm::NoiseOf(size_t i, size_t j) { return noise_[std::min(i, j) * hosts.size() + std::max(i, j)]; }

Estimate Swarm::Link(size_t i, size_t j) {
  const Host &us = hosts[i], &peer = hosts[j];
  Estimate e;
  if (now_s_ - std::max(us.started_s, peer.started_s) < kMeasuredAfterS || !peer.up || (cut && cut(i, j))) return e;
  Noise& x = NoiseOf(i, j);
  std::normal_distribution<double> normal;
  const double keep = std::exp(-(now_s_ - x.at_s) / kNoiseTimeS), fresh = std::sqrt(1 - keep * keep);
  x.at_s = now_s_;
  x.value = x.value * keep + fresh * normal(random_);
  x.slope = x.slope * keep + fresh * normal(random_);
  const double sign = i < j ? 1 : -1;
  double offset = LocalError(j) - LocalError(i) + sign * (spec_.noise_ns * x.value + x.asymmetry);
  e.epoch = us.steps + peer.steps;
  if (now_s_ - us.stepped_s < kFoundAfterS) offset += us.step_ns, --e.epoch;
  if (now_s_ - peer.stepped_s < kFoundAfterS) offset -= peer.step_ns, --e.epoch;
  e.state = SyncState::kSynchronised;
  e.offset_ns = std::llround(offset);
  e.slope_ppb = peer.drift_ppb - us.drift_ppb + sign * kSlopeNoisePpb * x.slope;
  e.slope_error_ppb = kSlopeNoisePpb;
  e.settled = true;
  e.error_est_ns = std::llround(spec_.error_est_ns);
  e.bound_ns = std::llround(spec_.bound_ns);
  return e;
}

void Swarm::Round(size_t i) {
  Host& h = hosts[i];
  views_.clear();
  std::uniform_real_distribution<double> age(0.1, 0.5);
  for (const size_t j : h.peers) {
    NeighbourView v;
    v.name = hosts[j].name;
    v.link = Link(i, j);
    v.claim_age_ns = INT64_MAX / 2;
    if (v.link.state != SyncState::kUnknown) {
      const double until = now_s_ - age(random_);
      for (const auto& [said_s, claim] : hosts[j].said) {
        if (said_s > until) break;
        v.claim = claim;
        v.claim_age_ns = std::llround((now_s_ - said_s) * 1e9);
        if (twist) twist(j, i, said_s, v.claim);
      }
    }
    views_.push_back(std::move(v));
  }
  const int64_t local = Local(i);
  h.agreement->Update(local, views_, h.anchor != nullptr ? h.anchor(now_s_, local) : AnchorReading{});
  h.said.emplace_back(now_s_, h.agreement->Claim());
  if (h.said.size() > 12) h.said.pop_front();
}

}  // namespace cw::sync
