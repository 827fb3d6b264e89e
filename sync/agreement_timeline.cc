// SPDX-License-Identifier: Apache-2.0
// Which timeline a host of Agreement lives on, and when it leaves it.
#include <algorithm>

#include "sync/agreement_impl.h"

namespace cw::sync {

uint64_t Agreement::Impl::NewTimeline(int64_t now_ns) const {
  const auto ms = static_cast<uint64_t>(now_ns / 1'000'000);
  return (ms & 0xfff'ffff'ffff) << 20 | (id & 0xfffff) | 1;
}

// Where all clocks of a part of the fleet are disrupted, what its hosts find together is not what they have lost: it
// gets an id of its own, a higher one, so that it is they who move if the others still live on that.
uint64_t Agreement::Impl::NextTimeline(int64_t now_ns) const {
  return std::max(NewTimeline(now_ns), ((lost_timeline >> 20) + 1) << 20 | (id & 0xfffff) | 1);
}

// Each timeline that is heard of, with the number of hosts on it that are synchronised, and of those that have not been
// on ours within the last minute.
void Agreement::Impl::CountTimelines(const std::vector<NeighbourView>& views) {
  votes.clear();
  for (const Peer& p : peers) {
    if (!p.heard) continue;
    const FleetClaim& c = views[p.view].claim;
    auto it = std::find_if(votes.begin(), votes.end(), [&](const auto& v) { return v.timeline == c.timeline; });
    if (it == votes.end()) it = votes.insert(votes.end(), {c.timeline, 0, 0, 0});
    ++it->heard;
    it->synchronised += c.state != SyncState::kUnknown;
    it->strangers += last_ns - memories[p.view].comparable_ns > kStrangerNs;
  }
}

// The timeline of the lowest id that more neighbours live on than may lie; ids begin with the founder's time. 0: none.
uint64_t Agreement::Impl::Vouched() const {
  int all = 0;
  for (const Votes& v : votes) all += v.synchronised;
  uint64_t best = 0;
  for (const Votes& v : votes) {
    if (v.synchronised > Liars(all) && (best == 0 || v.timeline < best)) best = v.timeline;
  }
  return best;
}

// Without a timeline of our own to lose. Where nobody lives on one yet, the lowest id spreads like a rumour.
void Agreement::Impl::ChooseTimeline(int64_t now_ns) {
  uint64_t best = Vouched();
  if (best == 0) {
    best = own_timeline;
    for (const Votes& v : votes) {
      if (v.timeline != lost_timeline) best = std::min(best, v.timeline);
    }
  }
  if (best != timeline) {
    timeline = best;
    rounds = 0;
  }
  if (!votes.empty() && heard_since_ns == kLongAgoNs) heard_since_ns = now_ns;
}

// Of two timelines that meet, those on the one with the higher id move. A host goes over as soon as more neighbours
// than may lie are on the lower one, and not all of them were with us just now: another part of the fleet brings new
// faces, while liars among the neighbours do not. It goes back only when nearly all neighbours are on the higher one
// for long, because then the lower one is a remnant.
bool Agreement::Impl::LeaveTimeline(int64_t now_ns) {
  int all = 0, ours = 0, strangers = 0;
  const uint64_t vouched = Vouched();
  for (const Votes& v : votes) {
    all += v.synchronised;
    if (v.timeline == timeline) ours = v.synchronised;
    if (v.timeline == vouched) strangers = v.strangers;
  }
  uint64_t wanted = timeline;
  const bool deserted = ours <= Liars(all);
  if (vouched != 0 && ((vouched < timeline && strangers > 0) || deserted)) wanted = vouched;
  if (wanted != wanted_timeline) {
    wanted_timeline = wanted;
    wanted_since_ns = now_ns;
  }
  if (wanted == timeline || now_ns - wanted_since_ns < (wanted < timeline ? hold_ns : kRemnantNs + hold_ns))
    return false;
  timeline = own_timeline = wanted;
  Unsettle(now_ns, FleetTrouble::kSettling);
  return true;
}

}  // namespace cw::sync
