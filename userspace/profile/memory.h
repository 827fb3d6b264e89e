// SPDX-License-Identifier: Apache-2.0
//
// Reads the memory of userspace/inproc/nccl/cw_profiler.h. Whoever wrote it may be hostile, may write while we read,
// and may have died in the middle of it: every index is masked, everything is copied before it is looked at, and a
// number is a claim. What cannot be is a fault of ours: the file is our own and its size is sealed, so that no read of
// it ends in a signal. A stranger's file is never taken, see userspace/rdma/stranger_socket.h.
//
// Thread rule: one thread. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/inproc/nccl/cw_profiler.h"

namespace cw::profile {

// Text of a stranger: printable ASCII up to the first NUL, anything else as '?'.
std::string Text(const char* text, size_t size);

class Memory {
 public:
  // An empty one, and the descriptor to give away; the caller closes it.
  struct Made {
    std::unique_ptr<Memory> memory;
    int fd = -1;
  };
  static absl::StatusOr<Made> Make();
  // InvalidArgument: its writer has not begun, or writes another layout.
  absl::Status Check() const;
  // Over memory that stays the caller's: for tests.
  explicit Memory(const cw_prof_shared* shared) : shared_(shared) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // The next complete records, at most `limit`. A record that stays incomplete for a second is given up.
  std::vector<cw_prof_record> Read(int64_t now_ns, size_t limit);
  uint64_t lost() const { return lost_; }  // overwritten, or given up
  uint64_t unread() const { return __atomic_load_n(&shared_->head, __ATOMIC_RELAXED) - next_; }

  // What is open now; a slot that changes meanwhile is left out.
  std::optional<cw_prof_coll> Coll(uint64_t handle) const;
  struct OpenOp {
    uint64_t handle = 0;
    cw_prof_op op{};
  };
  std::vector<OpenOp> OpenOps() const;
  std::vector<cw_prof_step> OpenSteps() const;
  std::vector<cw_prof_net> OpenNets() const;

  cw_prof_counts Counts() const;
  uint64_t Dropped() const;  // events for which there was no room
  uint32_t Pid() const;      // in its own namespace
  std::string Label() const;
  std::string Process() const;

 private:
  enum class Got { kRecord, kGone, kNotYet };
  Got ReadOne(uint64_t index, cw_prof_record& out) const;

  const cw_prof_shared* shared_;
  bool mapped_ = false;
  uint64_t next_ = 0;  // record to be read
  uint64_t lost_ = 0;
  int64_t waiting_since_ns_ = 0;  // for record next_; 0: not waiting
};

}  // namespace cw::profile
