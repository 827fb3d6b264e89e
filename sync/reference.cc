// SPDX-License-Identifier: Apache-2.0
#include "sync/reference.h"

#include <algorithm>

namespace cw::sync {
namespace {

constexpr uint32_t kMostHops = 32;            // the diameter of a random graph of 10^6 hosts is 7
constexpr int64_t kSilentNs = 1'500'000'000;  // a reference whose round does not advance for so long has gone
constexpr int64_t kSeqNs = 100'000'000;  // the round counts tenths of seconds of fleet time, so it outlives a restart
constexpr int64_t kLostForNs = 5'000'000'000;       // so long it is not taken back, until all have noticed, …
constexpr int64_t kMostLostForNs = 60'000'000'000;  // … each time twice as long, for one that flickers …
constexpr int64_t kFlickerNs = 600'000'000'000;     // … within so long
constexpr uint32_t kAheadSeq = 20;                  // fleet times of one timeline are not further apart
constexpr size_t kMostLost = 16;

bool Later(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

}  // namespace

void Reference::Reset() { *this = Reference(); }

bool Reference::Gone(uint64_t id, int64_t now_ns) const {
  return std::any_of(lost_.begin(), lost_.end(),
                     [&](const Lost& l) { return l.id == id && now_ns - l.at_ns < l.for_ns; });
}

// Nothing new is told of it, though others are heard. Who hears nobody may be cut off itself, and has not lost it.
bool Reference::Silent(int64_t now_ns) const {
  if (now_ns - advanced_ns_ < kSilentNs) return false;
  bool others = false;
  for (const auto& [c, age_s] : told_) {
    if (c->reference_id == id_ && Later(c->reference_seq, seq_)) return false;
    others |= c->host_id != id_ && age_s * 1e9 < kSilentNs;
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

void Reference::Elect(uint64_t self, bool eligible, int64_t now_ns) {
  uint64_t best = eligible ? self : UINT64_MAX;
  for (const auto& [c, age_s] : told_) {
    if (c->reference_id != self && !Gone(c->reference_id, now_ns)) best = std::min(best, c->reference_id);
  }
  if (best == UINT64_MAX || best == id_) return;
  // Who leaves a lower reference only does so after that one has fallen silent.
  if (id_ != 0 && id_ < best && now_ns - advanced_ns_ < kSilentNs && !Gone(id_, now_ns)) return;
  id_ = best;
  seq_ = 0;
  advanced_ns_ = now_ns;
}

// Only what is newer counts: otherwise hosts would tell each other of a dead reference for ever.
void Reference::Follow(int64_t now_ns) {
  uint32_t newest = seq_, hops = kMostHops;
  for (const auto& [c, age_s] : told_) {
    if (c->reference_id == id_ && (newest == 0 || Later(c->reference_seq, newest))) newest = c->reference_seq;
  }
  if (newest == seq_) return;
  seq_ = newest;
  advanced_ns_ = now_ns;
  for (const auto& [c, age_s] : told_) {
    if (c->reference_id == id_) hops = std::min(hops, c->host_id == id_ ? 0 : c->hops);
  }
  hops_ = hops + 1;
}

void Reference::Update(uint64_t self, int64_t now_ns, int64_t fleet_ns, bool eligible, const std::vector<Told>& told) {
  const auto round = static_cast<uint32_t>(fleet_ns / kSeqNs);
  told_.clear();
  for (const Told& t : told) {
    const FleetClaim& c = *t.claim;
    if (c.reference_id != 0 && c.hops < kMostHops && !Later(c.reference_seq, round + kAheadSeq)) told_.push_back(t);
  }
  if (id_ != 0 && id_ != self && !Gone(id_, now_ns) && Silent(now_ns)) Lose(id_, now_ns);
  Elect(self, eligible, now_ns);
  if (id_ == self && eligible) {
    seq_ = round;
    advanced_ns_ = now_ns;
    hops_ = 0;
  } else if (id_ != 0) {
    Follow(now_ns);
  }
}

}  // namespace cw::sync
