// SPDX-License-Identifier: Apache-2.0
//
// One-way delays of single chunks: the receiver's completion − the sender's post, matched by order.
//
// A chunk's number is its place among the requests of one proxy operation on one queue pair, which NCCL posts in the
// same order at both ends (net_ib/p2p.cc starts an event for every request and queue pair in ncclIbMultiSend as in
// ncclIbIrecv). The count begins with each operation, so that losses and late starts reach no further than that, and
// the operation has the same name at both ends: communicator, function, NCCL's sequence number, channel. Whatever makes
// the order doubtful leaves the delays of the operation unknown: events without room, another number of requests or
// another size at the other end, two operations of one name, an arrival before its post.
// Pure: time comes in; bounded whatever a peer sends. Thread rule: one thread. Times of chunks: fleet time, ns.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "userspace/model/addr.h"
#include "userspace/model/flow.h"

namespace cw::profile {

// The operation's name, the same at both ends and in all releases: FNV-1a of 64 bits.
uint64_t OperationName(uint64_t job, const std::string& function, uint64_t seq, uint32_t channel);

// What one process of this host stamped of one operation on one queue pair. Times: CLOCK_MONOTONIC, ns.
struct ChunkOp {
  uint64_t connection = 0;        // of the process whose collective it is, see Profiles
  uint64_t coll = 0, handle = 0;  // of the collective and the operation there
  uint32_t pid = 0;               // of the process that has the queue pair
  uint32_t qpn = 0;               // local
  bool send = false;
  uint64_t operation = 0;                            // OperationName
  uint32_t posted = 0;                               // requests in all
  uint64_t bytes = 0;                                // of the operation, on all its queue pairs; 0: not told
  std::vector<std::pair<uint32_t, int64_t>> stamps;  // number; post of a send, completion of a receive
};

// At most so many requests of one operation on one queue pair.
inline constexpr uint32_t kMostChunks = 1u << 24;

struct ChunkKey {
  FlowKey flow;  // from the sender to the receiver's queue pair
  uint64_t operation = 0;
  auto operator<=>(const ChunkKey&) const = default;
};

struct ChunkTime {
  uint32_t number = 0;
  int64_t fleet_ns = 0;
  int64_t bound_ns = 0;  // of fleet time, then and there
};

struct ChunkStats {
  uint64_t matched = 0;     // chunks
  uint64_t doubtful = 0;    // operations on a queue pair whose order or times contradict each other
  uint64_t unanswered = 0;  // … of which the other end told nothing
  uint64_t dropped = 0;     // … or arrivals, without room
};

class ChunkMatcher {
 public:
  static constexpr size_t kMaxOwn = 8192;            // operations
  static constexpr size_t kMaxTold = 8192;           // operations that peers told of and nobody here has (yet) …
  static constexpr size_t kMaxToldByPeer = 2048;     // … between two addresses
  static constexpr size_t kMaxTimes = 8;             // of one operation
  static constexpr int64_t kSettleNs = 300'000'000;  // in which what contradicts may still come
  static constexpr int64_t kKeepNs = 10'000'000'000;
  static constexpr int64_t kMaxDelayNs = 60'000'000'000;

  // Posts of an operation of this host.
  void AddPosts(const FlowKey& flow, const ChunkOp& op, const std::vector<ChunkTime>& posts, int64_t now_ns);
  // What the receiver tells of one chunk: claims of a stranger.
  void AddArrival(const ChunkKey& key, uint32_t posted, uint64_t bytes, const ChunkTime& arrival, int64_t now_ns);

  struct Match {
    uint64_t connection = 0, coll = 0, handle = 0;  // as ChunkOp has them
    uint32_t qpn = 0;
    std::vector<int64_t> delay_ns;  // not below 0
    int64_t bound_ns = 0;           // of the worst of them: both ends' fleet times
  };
  // All that is not matched yet is in doubt: fleet time is another one.
  void Void();
  // Those that settled since the last call. Call some times a second.
  std::vector<Match> Take(int64_t now_ns);

  const ChunkStats& stats() const { return stats_; }
  size_t size() const { return entries_.size(); }

 private:
  struct Side {
    uint32_t posted = 0;
    uint64_t bytes = 0;
    std::vector<ChunkTime> times;
  };
  struct Entry {
    bool own = false, told = false;
    bool doubtful = false;
    bool settled = false;  // judged; kept so that nothing of the same name is taken for new
    int64_t since_ns = 0;  // of the first word of it, by which it expires
    int64_t both_ns = 0;   // since when both sides are there; 0: not yet
    Side posts, arrivals;
    Match match;
  };
  using Entries = std::map<ChunkKey, Entry>;
  // Null: no room.
  Entry* Get(const ChunkKey& key, bool own, int64_t now_ns);
  void Expire(int64_t now_ns);
  void Forget(Entries::iterator entry);
  bool Judge(Entry& entry);

  Entries entries_;
  std::deque<std::pair<int64_t, ChunkKey>> begun_;   // oldest first
  std::deque<std::pair<int64_t, ChunkKey>> both_;    // with both sides, not judged; oldest first
  std::map<std::pair<Addr, Addr>, size_t> told_by_;  // entries without an own side, by peer
  size_t own_ = 0, told_ = 0;
  ChunkStats stats_;
};

}  // namespace cw::profile
