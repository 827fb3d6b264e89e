// SPDX-License-Identifier: Apache-2.0
//
// The processes of this host that carry the NCCL profiler plug-in: their communicators and collectives.
//
// Thread rule: one thread. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/profile/book.h"
#include "userspace/profile/memory.h"
#include "userspace/profile/verdict.h"

namespace cw::profile {

namespace v1 = ::cwfabric::v1;

struct Stall {
  v1::Collective collective;
  double stands_s = 0;
};

struct QpOfProcess {
  uint32_t pid = 0, qpn = 0;
};

struct ProfileOptions {
  int64_t stall_ns = 10'000'000'000;  // 0: never
  double slow_factor = 2;
  size_t records_per_poll = CW_PROF_RING;  // of all processes together
  size_t looks_per_poll = 8;               // for stalls, each of which goes through all pools of a process
};

class Profiles {
 public:
  explicit Profiles(const ProfileOptions& options) : options_(options) {}

  void SetOptions(const ProfileOptions& options) { options_ = options; }

  // Connections are named by the caller; each has one memory. Its descriptor, to be given to the process and closed.
  // ResourceExhausted: there are too many; AlreadyExists.
  absl::StatusOr<int> Offer(uint64_t connection, uint32_t pid, uint32_t uid);
  // The process has begun to write there. NotFound: none was offered.
  absl::Status Begin(uint64_t connection);
  void Add(uint64_t connection, uint32_t pid, uint32_t uid, std::unique_ptr<Memory> memory);
  // The process is gone; what it did is kept for a while.
  void Closed(uint64_t connection, int64_t now_ns);
  // What was stamped of chunks, since the last call; and the delays that came of it.
  std::vector<ChunkOp> TakeChunks();
  void AddDelays(const ChunkMatcher::Match& match);
  // Reads what is new, up to a budget that all processes share: one that writes without end delays nobody else, and the
  // rest comes with the next call. Calls back for collectives that began to stand. The number of records.
  size_t Poll(int64_t now_ns, const std::function<void(const Stall&)>& stalled);
  bool empty() const { return processes_.empty(); }

  // Local queue pairs whose process has posted requests that a collective waits for: one that has been running for a
  // second, or that was slow just now and was held back by the network at this queue pair.
  std::vector<QpOfProcess> AwaitedSends(int64_t now_ns) const;

  // Unset fields: what only the agent knows of queue pairs (flow, NIC, peer, path).
  v1::ListJobsReply Jobs(const v1::ListJobsRequest& request, int64_t now_ns) const;
  v1::ListCollectivesReply Collectives(const v1::ListCollectivesRequest& request, int64_t now_ns) const;
  // The newest that sent over this queue pair; pid 0: of any process.
  std::optional<v1::Collective> NewestOn(uint32_t pid, uint32_t qpn, int64_t now_ns) const;

 private:
  struct Process {
    uint64_t connection = 0;
    uint32_t pid = 0, uid = 0;
    uint32_t own_pid = 0;  // as the process has it, in its own namespace
    std::string label, name;
    std::unique_ptr<Memory> memory;
    Book book;
    uint64_t lost_told = 0;
    int64_t closed_ns = 0;  // 0: it is there
    int64_t looked_ns = 0;  // for stalls
    bool seen_qps = false;
  };
  struct Offered {
    uint32_t pid = 0, uid = 0;
    std::unique_ptr<Memory> memory;
  };
  absl::Status MakeRoom(uint32_t uid);
  OpenNow Open(const Process& process, int64_t now_ns) const;
  void Route(Process& from, const cw_prof_record& record);
  Process* FindPid(uint32_t pid, uint32_t uid);
  size_t ReadAll(int64_t now_ns);
  size_t ReadSome(Process& process, int64_t now_ns, size_t limit);
  void FindStalls(Process& process, int64_t now_ns, const std::function<void(const Stall&)>& stalled);
  void FillJob(const Process& process, const Comm& comm, const OpenNow& open, int64_t now_ns, v1::Job& out) const;
  v1::Collective View(const Process& process, const Collective& coll, int64_t now_ns) const;
  void AddOpenSends(const Process& process, int64_t now_ns, std::vector<QpOfProcess>& out) const;
  static std::string LabelOf(const Process& process, const Comm* comm);
  static bool Matches(const Process& process, const Comm* comm, const std::string& job);

  ProfileOptions options_;
  uint64_t first_ = 0;                                      // connection whose turn it is
  std::map<uint64_t, std::unique_ptr<Process>> processes_;  // by connection
  std::map<uint64_t, Offered> offered_;                     // by connection; not begun
  std::deque<std::pair<v1::Collective, int64_t>> stalls_;   // as they were when they were found, and when
};

}  // namespace cw::profile
