// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sync/neighbours.h"

namespace cw::agent {
namespace {

// A claim that is older than the one held is a late message, unless so much older that its host's clock was set back.
constexpr int64_t kLateRoundNs = 1'000'000'000;
// Any number does, as long as all hosts have the same.
constexpr uint64_t kGraphSeed = 0x6377666162726963;

}  // namespace

bool ClockLink::BetterThan(const ClockLink& other) const {
  const auto rank = [](const ClockLink& link) {
    const bool synchronised = link.estimate.state == sync::SyncState::kSynchronised;
    const bool known = link.estimate.state != sync::SyncState::kUnknown;
    return std::tuple(!synchronised, !known, link.estimate.error_est_ns, link.pair);
  };
  return rank(*this) < rank(other);
}

FleetClock::FleetClock(std::string host, uint64_t seed)
    : host_(std::move(host)), agreement_(host_, seed), links_(host_) {}

void FleetClock::SetPeers(const std::vector<std::string>& peers, size_t fast) {
  std::vector<std::string> names = peers;
  names.push_back(host_);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<uint64_t> ids;
  for (const std::string& name : names) ids.push_back(sync::HostId(name));
  const auto self = static_cast<size_t>(std::find(names.begin(), names.end(), host_) - names.begin());
  peers_ = names.size() - 1;
  agreement_.SetMembers(names.size());
  links_.SetNames(names);
  neighbours_.clear();
  shown_.clear();
  for (const size_t index : sync::ChooseNeighbours(ids, self, kGraphSeed)) {
    neighbours_[names[index]] = shown_.size();
    shown_.push_back({.name = names[index]});
  }
  // By a hash that is the same at both ends.
  std::map<uint64_t, std::string> ranked;
  for (const Neighbour& neighbour : shown_) {
    const auto [first, second] = std::minmax(host_, neighbour.name);
    ranked[sync::HostId(first + " " + second)] = neighbour.name;
  }
  fast_.clear();
  for (const auto& [rank, name] : ranked) {
    if (fast_.size() < fast) fast_.insert(name);
  }
  std::erase_if(heard_, [this](const auto& heard) { return !IsNeighbour(heard.first); });
}

void FleetClock::OnClaim(const std::string& peer, const sync::FleetClaim& claim, int64_t now_ns) {
  // The message's MAC proves who the peer is; a claim in another host's name is not its own.
  if (!IsNeighbour(peer) || claim.host_id != sync::HostId(peer)) return;
  auto [heard, is_new] = heard_.try_emplace(peer);
  const int64_t behind_ns = heard->second.claim.anchor_ns - claim.anchor_ns;
  if (!is_new && behind_ns > 0 && behind_ns < kLateRoundNs) return;
  claims_moved_ |= std::abs(claim.rate_ppb - heard->second.claim.rate_ppb) > kRateMovedPpb;
  heard->second = {claim, now_ns};
}

void FleetClock::OnLinks(const std::string& peer, std::vector<LinkReport> links, int64_t now_ns) {
  if (IsNeighbour(peer)) links_.OnReport(peer, std::move(links), now_ns);
}

bool FleetClock::Compared(const Neighbour& n) {
  using sync::Reason;
  return n.linked && n.heard && n.link.estimate.state != sync::SyncState::kUnknown &&
         (n.verdict.reason == Reason::kUsed || n.verdict.reason == Reason::kTrimmed ||
          n.verdict.reason == Reason::kFalseTicker || n.verdict.reason == Reason::kJittery ||
          n.verdict.reason == Reason::kDistant);
}

double FleetClock::LikelyErrorNs(const Neighbour& n) const {
  const double likely_ns =
      std::hypot(static_cast<double>(n.link.estimate.error_est_ns), static_cast<double>(n.claim.error_est_ns),
                 static_cast<double>(now().error_est_ns));
  return std::max(likely_ns, 1.0);
}

std::vector<LinkReport> FleetClock::OwnLinks() const {
  std::vector<LinkReport> links;
  for (const Neighbour& n : shown_) {
    if (!Compared(n)) continue;
    links.push_back({.peer_id = sync::HostId(n.name),
                     .disagreement_ns = std::llround(n.verdict.disagreement_ns),
                     .error_ns = std::llround(LikelyErrorNs(n))});
  }
  return links;
}

std::vector<sync::NeighbourView> FleetClock::Views(int64_t now_ns, const std::vector<ClockLink>& links) {
  for (Neighbour& neighbour : shown_) neighbour.linked = false;
  for (const ClockLink& link : links) {
    const auto place = neighbours_.find(link.peer);
    if (place == neighbours_.end()) continue;
    Neighbour& neighbour = shown_[place->second];
    if (neighbour.linked && !link.BetterThan(neighbour.link)) continue;
    neighbour.linked = true;
    neighbour.link = link;
  }
  std::vector<sync::NeighbourView> views;
  for (Neighbour& neighbour : shown_) {
    sync::NeighbourView view{.name = neighbour.name};
    if (neighbour.linked) view.link = neighbour.link.estimate;
    const auto heard = heard_.find(neighbour.name);
    neighbour.heard = heard != heard_.end();
    if (neighbour.heard) {
      neighbour.claim = view.claim = heard->second.claim;
      neighbour.claimed_ns = heard->second.at_ns;
      view.claim_age_ns = std::max<int64_t>(now_ns - heard->second.at_ns, 0);
    }
    views.push_back(std::move(view));
  }
  return views;
}

bool FleetClock::RateJumped(int64_t now_ns, const std::vector<ClockLink>& links) {
  const std::vector<Neighbour> shown = shown_;  // what is shown stays that of the last round
  const bool jumped = agreement_.RateJumped(now_ns, Views(now_ns, links));
  shown_ = shown;
  return jumped;
}

std::vector<telemetry::Event> FleetClock::Round(int64_t now_ns, const std::vector<ClockLink>& links,
                                                const sync::AnchorReading& anchor) {
  const std::vector<sync::NeighbourView> views = Views(now_ns, links);
  claims_moved_ = false;
  const sync::FleetTime& time = agreement_.Update(now_ns, views, anchor);
  round_ns_ = now_ns;
  for (const sync::NeighbourVerdict& verdict : agreement_.verdicts()) {
    const auto place = neighbours_.find(verdict.name);
    if (place != neighbours_.end()) shown_[place->second].verdict = verdict;
  }
  std::vector<telemetry::Event> events =
      events_.Look(now_ns, time, agreement_.Claim().timeline, views, agreement_.verdicts());
  events_.LookAtAnchors(agreement_.anchors(), agreement_.tai().known, events);
  return events;
}

void FleetClock::Disrupted(int64_t now_ns) {
  heard_.clear();  // what was heard is by the line that has ended
  agreement_.Disrupted(now_ns);
}

}  // namespace cw::agent
