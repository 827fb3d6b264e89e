// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/clock.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sync/neighbours.h"

namespace cw::agent {
namespace {

// A claim that is older than the one held is a late message, unless so much older that its host's clock was set back.
constexpr int64_t kLateNs = 1'000'000'000;
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

FleetClock::FleetClock(std::string host, uint64_t seed) : host_(std::move(host)), agreement_(host_, seed) {}

void FleetClock::SetPeers(const std::vector<std::string>& peers) {
  std::vector<std::string> names = peers;
  names.push_back(host_);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<uint64_t> ids;
  for (const std::string& name : names) ids.push_back(sync::HostId(name));
  const auto self = static_cast<size_t>(std::find(names.begin(), names.end(), host_) - names.begin());
  peers_ = names.size() - 1;
  neighbours_.clear();
  shown_.clear();
  for (const size_t index : sync::ChooseNeighbours(ids, self, kGraphSeed)) {
    neighbours_[names[index]] = shown_.size();
    shown_.push_back({.name = names[index]});
  }
  std::erase_if(heard_, [this](const auto& heard) { return !IsNeighbour(heard.first); });
}

void FleetClock::OnClaim(const std::string& peer, const sync::FleetClaim& claim, int64_t now_ns) {
  if (!IsNeighbour(peer)) return;
  auto [heard, is_new] = heard_.try_emplace(peer);
  const int64_t behind_ns = heard->second.claim.anchor_ns - claim.anchor_ns;
  if (!is_new && behind_ns > 0 && behind_ns < kLateNs) return;
  claims_moved_ |= std::abs(claim.rate_ppb - heard->second.claim.rate_ppb) > kRateMovedPpb;
  heard->second = {claim, now_ns};
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
  return agreement_.RateJumped(now_ns, Views(now_ns, links));
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
  return events_.Look(now_ns, time, agreement_.Claim().timeline, views, agreement_.verdicts());
}

void FleetClock::Disrupted(int64_t now_ns) {
  heard_.clear();  // what was heard is by the line that has ended
  agreement_.Disrupted(now_ns);
}

}  // namespace cw::agent
