// SPDX-License-Identifier: Apache-2.0
#include "sync/reference.h"

#include <algorithm>

#include "sync/vote.h"

namespace cw::sync {
namespace {

constexpr uint32_t kMostHops = 32;            // the diameter of a random graph of 10^6 hosts is 7
constexpr int64_t kSilentNs = 1'500'000'000;  // a reference whose round does not advance for so long has gone
constexpr int64_t kSeqNs = 100'000'000;  // the round counts tenths of seconds of fleet time, so it outlives a restart
constexpr int64_t kLostForNs = 5'000'000'000;       // so long it is not taken back, until all have noticed, …
constexpr int64_t kMostLostForNs = 60'000'000'000;  // … each time twice as long, for one that flickers …
constexpr int64_t kFlickerNs = 600'000'000'000;   // … within so long
constexpr uint32_t kOldSeq = 15;                    // a distance may be told of a round so much older than the newest
constexpr size_t kMostLost = 16;

bool Later(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

double Median(std::vector<double>& v) {
  const auto middle = v.begin() + static_cast<long>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

}  // namespace

void Reference::Reset() { *this = Reference(); }

bool Reference::Gone(uint64_t id, int64_t now_ns) const {
  return std::any_of(lost_.begin(), lost_.end(),
                     [&](const Lost& l) { return l.id == id && now_ns - l.at_ns < l.for_ns; });
}

// Nothing new is told of it, though others are heard. Who hears nobody may be cut off itself, and has not lost it.
bool Reference::Silent(const std::vector<Told>& told, int64_t now_ns) const {
  if (now_ns - advanced_ns_ < kSilentNs) return false;
  bool others = false;
  for (const Told& t : told) {
    const FleetClaim& c = *t.claim;
    if (c.reference_id == id_ && c.hops < kMostHops && Later(c.reference_seq, seq_)) return false;
    others |= c.host_id != id_ && t.age_s * 1e9 < kSilentNs;
  }
  return others;
}

void Reference::Lose(uint64_t id, int64_t now_ns) {
  auto it = std::find_if(lost_.begin(), lost_.end(), [id](const Lost& l) { return l.id == id; });
  int64_t for_ns = kLostForNs;
  if (it != lost_.end()) {
    if (now_ns - it->at_ns < kFlickerNs) for_ns = std::min(2 * it->for_ns, kMostLostForNs);
    lost_.erase(it);
  }
  if (lost_.size() >= kMostLost) lost_.erase(lost_.begin());
  lost_.push_back({id, now_ns, for_ns});
}

void Reference::Elect(uint64_t self, bool eligible, const std::vector<Told>& told, int64_t now_ns) {
  uint64_t best = eligible ? self : UINT64_MAX;
  for (const Told& t : told) {
    const FleetClaim& c = *t.claim;
    if (c.reference_id == 0 || c.reference_id == self || c.hops >= kMostHops) continue;
    if (!Gone(c.reference_id, now_ns)) best = std::min(best, c.reference_id);
  }
  if (best == UINT64_MAX || best == id_) return;
  // Who leaves a lower reference only does so after that one has fallen silent.
  if (id_ != 0 && id_ < best && now_ns - advanced_ns_ < kSilentNs && !Gone(id_, now_ns)) return;
  id_ = best;
  seq_ = 0;
  advanced_ns_ = now_ns;
  measured_ns_ = INT64_MIN;
}

// Only when something newer is told: otherwise hosts would tell each other a dead reference's last distance, longer
// each time.
void Reference::Measure(const std::vector<Told>& told, int64_t now_ns) {
  uint32_t newest = seq_;
  for (const Told& t : told) {
    const FleetClaim& c = *t.claim;
    if (c.reference_id != id_ || c.hops >= kMostHops) continue;
    if (newest == 0 || Later(c.reference_seq, newest)) newest = c.reference_seq;
  }
  if (newest == seq_) return;
  seq_ = newest;
  advanced_ns_ = now_ns;
  candidates_.clear();
  links_.clear();
  double direct = -1;
  uint32_t hops = kMostHops;
  for (const Told& t : told) {
    const FleetClaim& c = *t.claim;
    if (c.reference_id != id_ || c.hops >= kMostHops || Later(newest - kOldSeq, c.reference_seq)) continue;
    const bool is_it = c.host_id == id_;
    // What was told of the distance grows for any line; where the neighbour itself is meant, its line may have bent.
    const double told_ns = static_cast<double>(std::max<int64_t>(c.bound_ns, 0)) + t.grown_ns;
    candidates_.push_back(t.link_ns + (is_it ? t.bent_ns : told_ns));
    links_.push_back(t.link_ns);
    if (is_it) direct = t.link_ns + t.bent_ns;
    hops = std::min(hops, is_it ? 0 : c.hops);
  }
  if (candidates_.empty()) return;
  std::sort(candidates_.begin(), candidates_.end());
  const auto f = static_cast<size_t>(MostLiars(static_cast<int>(candidates_.size())));
  const double vouched = candidates_[f];
  relayed_ns_ = std::max(candidates_[0], vouched - 2 * Median(links_));
  published_ns_ = vouched;
  if (direct >= 0) relayed_ns_ = published_ns_ = direct;
  hops_ = hops + 1;
  measured_ns_ = now_ns;
}

void Reference::Update(uint64_t self, int64_t now_ns, int64_t fleet_ns, bool eligible, const std::vector<Told>& told,
                       double growth_ppb) {
  if (id_ != 0 && id_ != self && !Gone(id_, now_ns) && Silent(told, now_ns)) Lose(id_, now_ns);
  Elect(self, eligible, told, now_ns);
  if (id_ == self && eligible) {
    seq_ = static_cast<uint32_t>(fleet_ns / kSeqNs);
    advanced_ns_ = measured_ns_ = now_ns;
    hops_ = 0;
    relayed_ns_ = published_ns_ = 0;
  } else if (id_ != 0) {
    const bool first = measured_ns_ == INT64_MIN;
    Measure(told, now_ns);
    if (measured_ns_ != now_ns) {  // nobody told: the last distance grows
      const double grown = growth_ppb * 1e-9 * static_cast<double>(now_ns - updated_ns_);
      relayed_ns_ = first ? kNowhereNs : relayed_ns_ + grown;
      published_ns_ = first ? kNowhereNs : published_ns_ + grown;
    }
  } else {
    relayed_ns_ = published_ns_ = kNowhereNs;
  }
  updated_ns_ = now_ns;
}

}  // namespace cw::sync
