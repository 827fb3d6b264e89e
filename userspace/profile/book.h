// SPDX-License-Identifier: Apache-2.0
//
// Joins what one process' profiler tells to collectives: which operations on the network each had, how long they waited
// in each state, over which queue pairs.
//
// A collective is done when its stop was seen, no child is open, and none came for kSettle: NCCL's own stop means
// "enqueued", and how many children will come is not known. One without any part on the network (all its ranks on one
// host) is forgotten after kLocal.
// Pure: time and what is open now come in as arguments; bounded whatever comes in. Thread rule: one thread.
// Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "userspace/inproc/nccl/cw_profiler.h"
#include "userspace/profile/chunks.h"

namespace cw::profile {

using Waits = std::array<double, CW_WAIT_STATES>;  // ns, by cw_prof_wait

struct Qp {
  uint32_t qpn = 0;  // local
  uint64_t requests = 0;
  uint64_t bytes = 0;
  double wire_ns = 0;
  double wire_max_ns = 0;
  uint32_t open = 0;              // posted and not completed
  double open_ns = 0;             // the oldest of these, for so long
  std::vector<int64_t> chunk_ns;  // one-way delays of some of its chunks, see chunks.h; empty: not known
  int64_t chunk_bound_ns = 0;
};

// One proxy operation.
struct Op {
  uint64_t handle = 0;
  int peer = -1;  // rank
  uint32_t channel = 0;
  bool send = false;
  bool done = false;
  uint32_t steps = 0;  // 0: not known
  uint32_t steps_done = 0;
  uint64_t bytes = 0;
  int64_t start_ns = 0;
  int64_t first_ns = 0;  // first data, 0: none yet
  int64_t progress_ns = 0;
  Waits wait_ns{};
  uint32_t state = CW_WAIT_NONE;  // of the step that is in it for longest, while it runs
  int64_t state_since_ns = 0;
  std::vector<Qp> qps;
};

struct Comm {
  uint64_t handle = 0;
  uint64_t id = 0;
  int ranks = 0, rank = 0, nodes = 0;
  uint32_t profiler = 0;
  std::string name;
  int64_t start_ns = 0;
  bool ended = false;
  uint64_t done = 0;  // collectives with a measured duration
};

struct Collective {
  uint64_t handle = 0;
  uint64_t comm = 0;  // handle
  uint64_t seq = 0;
  bool p2p = false;
  int root = -1;       // the peer of a send or receive
  uint64_t bytes = 0;  // nccl-tests' size, 0: not known
  uint32_t channels = 0;
  std::string function, datatype, algorithm, protocol;
  int64_t start_ns = 0;
  bool enqueued = false;  // NCCL's stop was seen
  bool done = false;
  bool stall_told = false;
  bool slow = false;
  double usual_ns = 0;   // median of its like before it; 0: too few
  bool cut = false;      // part of it was lost, or did not fit
  int64_t first_ns = 0;  // first data
  int64_t last_ns = 0;   // end of its last child so far
  std::vector<Op> ops;   // done; while it runs, Book::Running adds the open ones

  double DurationNs() const { return first_ns > 0 && last_ns > first_ns ? static_cast<double>(last_ns - first_ns) : 0; }
};

// Bytes of nccl-tests' "size": of all ranks together where each has a part of it.
uint64_t SizeBytes(const std::string& function, const std::string& datatype, uint64_t count, int ranks);
// Bus bandwidth ÷ algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md).
double BusFactor(const std::string& function, int ranks);

// What is open in the process now.
struct OpenNow {
  std::vector<Op> ops;         // with the collective of each in `coll`
  std::vector<uint64_t> coll;  // handle
  std::vector<int32_t> pid;    // whose collective
};

class Book {
 public:
  static constexpr int64_t kSettleNs = 300'000'000;  // of which 100 ms pass until the plug-in has told
  static constexpr int64_t kLocalNs = 5'000'000'000;
  static constexpr size_t kMaxOpen = 8192, kMaxDone = 1024, kMaxOps = 512, kMaxComms = 1024;
  static constexpr size_t kMaxAllOps = 65536;  // of all collectives together
  static constexpr size_t kMaxChunkOps = 4096;

  // driver: the process that wrote the record; another one's than the collective's under PXN.
  void Add(const cw_prof_record& record, uint32_t driver = 0);
  void Lost();  // records: what is open now may be incomplete
  // open: children of the collective with this handle, −1 when its slot is another's by now.
  template <typename OpenChildren>
  void Tick(int64_t now_ns, double slow_factor, OpenChildren open) {
    std::vector<uint64_t> over;
    for (auto& [handle, coll] : open_) {
      if (IsOver(coll, now_ns, open(handle))) over.push_back(handle);
    }
    for (uint64_t handle : over) Close(handle, now_ns, slow_factor);
  }

  const std::map<uint64_t, Comm>& comms() const { return comms_; }
  std::map<uint64_t, Collective>& open() { return open_; }
  const std::map<uint64_t, Collective>& open() const { return open_; }
  const std::deque<Collective>& done() const { return done_; }
  // What was stamped of operations that ended since the last call; at most kMaxChunkOps, the oldest.
  std::vector<ChunkOp> TakeChunks();
  // Delays of chunks that were matched.
  void AddDelays(const ChunkMatcher::Match& match);
  // The collective with what is open of it.
  static Collective Running(const Collective& coll, const OpenNow& now);

 private:
  void StartComm(const cw_prof_record& record);
  void StartColl(const cw_prof_record& record);
  void StopOp(const cw_prof_record& record);
  void AddChunks(const cw_prof_record& record, uint32_t driver);
  void EndChunks(const cw_prof_record& record, const Collective& coll);
  void Drop(std::map<uint64_t, Collective>::iterator coll);
  void DropOldest();
  Collective* Find(uint64_t handle);
  static bool IsOver(const Collective& coll, int64_t now_ns, int open);
  void Close(uint64_t handle, int64_t now_ns, double slow_factor);

  std::map<uint64_t, Comm> comms_;                   // by handle
  std::map<uint64_t, Collective> open_;              // by handle
  std::deque<Collective> done_;                      // oldest first
  size_t ops_ = 0;                                   // of both together
  std::map<uint64_t, std::vector<Qp>> qps_;          // of operations whose end comes next
  std::map<uint64_t, std::vector<ChunkOp>> chunks_;  // the same
  std::vector<ChunkOp> chunk_ops_;
  // Durations of those alike, newest last: communicator, function and bytes.
  std::map<std::tuple<uint64_t, std::string, uint64_t>, std::deque<double>> alike_;
};

}  // namespace cw::profile
