// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/chunks.h"

#include <algorithm>

namespace cw::profile {
namespace {

constexpr uint64_t kFnvBasis = 0xcbf29ce484222325, kFnvPrime = 0x100000001b3;

uint64_t Hash(uint64_t hash, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * kFnvPrime;
  return hash;
}

std::pair<Addr, Addr> PeerOf(const ChunkKey& key) { return {key.flow.src, key.flow.dst}; }

}  // namespace

uint64_t OperationName(uint64_t job, const std::string& function, uint64_t seq, uint32_t channel) {
  uint64_t hash = Hash(Hash(Hash(kFnvBasis, job, 8), seq, 8), channel, 4);
  for (char c : function) hash = Hash(hash, static_cast<unsigned char>(c), 1);
  return hash ^ hash >> 29;
}

ChunkMatcher::Entry* ChunkMatcher::Get(const ChunkKey& key, bool own, int64_t now_ns) {
  Expire(now_ns);
  const auto found = entries_.find(key);
  const bool first_own = own && (found == entries_.end() || !found->second.own);
  if (first_own && own_ >= kMaxOwn) return nullptr;
  if (found == entries_.end()) {
    if (!own) {
      const auto by = told_by_.find(PeerOf(key));
      if (told_ >= kMaxTold || (by != told_by_.end() && by->second >= kMaxToldByPeer)) return nullptr;
      ++told_;
      ++told_by_[PeerOf(key)];
    }
    own_ += own ? 1 : 0;
    begun_.emplace_back(now_ns, key);
    Entry& entry = entries_[key];
    entry.own = own;
    entry.told = !own;
    entry.since_ns = now_ns;
    return &entry;
  }
  Entry& entry = found->second;
  if (own && !entry.own) {  // it is no longer one that nobody here has
    --told_;
    if (const auto by = told_by_.find(PeerOf(key)); --by->second == 0) told_by_.erase(by);
    ++own_;
  } else if (own) {
    entry.doubtful = true;
  }
  entry.own |= own;
  entry.told |= !own;
  if (entry.own && entry.told && entry.both_ns == 0) {
    entry.both_ns = now_ns;
    both_.emplace_back(now_ns, key);
  }
  return &entry;
}

void ChunkMatcher::Forget(Entries::iterator entry) {
  if (entry->second.own) {
    --own_;
  } else {
    --told_;
    if (const auto by = told_by_.find(PeerOf(entry->first)); --by->second == 0) told_by_.erase(by);
  }
  entries_.erase(entry);
}

void ChunkMatcher::Expire(int64_t now_ns) {
  while (!begun_.empty() && now_ns - begun_.front().first > kKeepNs) {
    const auto entry = entries_.find(begun_.front().second);
    begun_.pop_front();
    if (entry == entries_.end()) continue;
    if (!entry->second.told) ++stats_.unanswered;
    Forget(entry);
  }
}

void ChunkMatcher::AddPosts(const FlowKey& flow, const ChunkOp& op, const std::vector<ChunkTime>& posts,
                            int64_t now_ns) {
  Entry* entry = Get({flow, op.operation}, true, now_ns);
  if (entry == nullptr) {
    ++stats_.dropped;
    return;
  }
  if (entry->doubtful) return;
  entry->posts = {.posted = op.posted, .bytes = op.bytes, .times = posts};
  if (entry->posts.times.size() > kMaxTimes) entry->posts.times.resize(kMaxTimes);
  entry->match = {.connection = op.connection, .coll = op.coll, .handle = op.handle, .qpn = op.qpn};
}

void ChunkMatcher::AddArrival(const ChunkKey& key, uint32_t posted, uint64_t bytes, const ChunkTime& arrival,
                              int64_t now_ns) {
  Entry* entry = Get(key, false, now_ns);
  if (entry == nullptr) {
    ++stats_.dropped;
    return;
  }
  Side& side = entry->arrivals;
  if (side.times.empty()) {
    side.posted = posted;
    side.bytes = bytes;
  }
  const bool again =
      std::any_of(side.times.begin(), side.times.end(), [&](const ChunkTime& t) { return t.number == arrival.number; });
  if (side.posted != posted || side.bytes != bytes || again || side.times.size() >= kMaxTimes) {
    entry->doubtful = true;
    return;
  }
  side.times.push_back(arrival);
}

void ChunkMatcher::Void() {
  for (auto& [key, entry] : entries_) entry.doubtful = true;
}

// False: what the two ends say cannot both be so.
bool ChunkMatcher::Judge(Entry& entry) {
  const Side &posts = entry.posts, &arrivals = entry.arrivals;
  if (entry.doubtful || posts.posted != arrivals.posted) return false;
  if (posts.bytes != 0 && arrivals.bytes != 0 && posts.bytes != arrivals.bytes) return false;
  for (const ChunkTime& arrival : arrivals.times) {
    const auto post = std::find_if(posts.times.begin(), posts.times.end(),
                                   [&](const ChunkTime& t) { return t.number == arrival.number; });
    if (post == posts.times.end()) continue;
    const int64_t delay_ns = arrival.fleet_ns - post->fleet_ns, bound_ns = arrival.bound_ns + post->bound_ns;
    if (delay_ns < -bound_ns || delay_ns > kMaxDelayNs) return false;
    entry.match.delay_ns.push_back(std::max<int64_t>(delay_ns, 0));
    entry.match.bound_ns = std::max(entry.match.bound_ns, bound_ns);
  }
  return true;
}

std::vector<ChunkMatcher::Match> ChunkMatcher::Take(int64_t now_ns) {
  std::vector<Match> out;
  Expire(now_ns);
  for (; !both_.empty() && now_ns - both_.front().first >= kSettleNs; both_.pop_front()) {
    const auto found = entries_.find(both_.front().second);
    if (found == entries_.end() || found->second.settled) continue;
    Entry& entry = found->second;
    entry.settled = true;
    if (!Judge(entry)) {
      ++stats_.doubtful;
    } else if (!entry.match.delay_ns.empty()) {
      stats_.matched += entry.match.delay_ns.size();
      out.push_back(std::move(entry.match));
    }
    entry.posts = entry.arrivals = {};
    entry.match = {};
  }
  return out;
}

}  // namespace cw::profile
