// SPDX-License-Identifier: Apache-2.0
//
// The thread that sends probes: on an absolute clock, in real time where that is permitted, one sendmmsg per NIC and
// tick. It only sends; answers are handled by the BPF programs.
// Thread rule: every member may be called from any thread; a call may wait for the tick that is being sent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "maps/abi.h"
#include "userspace/probe/cadence.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/transport.h"

namespace cw::probe {

struct ProberOptions {
  CadenceOptions cadence;
  int fifo_priority = 20;  // SCHED_FIFO; 0: ordinary scheduling
  std::vector<int> cpus;   // the thread runs on these; none: on any
  double most_cpu = 0;     // processor seconds per second of the thread, see CpuAllowance; 0: no limit
  // Called by the thread when the longest interval of a pair that carries data has become longer. Must not call the
  // prober.
  std::function<void(int64_t longest_interval_ns)> stretched;
  // A transport is bound to the rights with which it was opened (uverbs by write()).
  bool keep_rights = false;
  // A pair with a suspect or dead slot is probed at the active interval for this long after the last new doubt; a path
  // that stays dead for longer is worth no more than the idle interval, unless data runs on the pair.
  int64_t doubt_ns = 10'000'000'000;
  // Called by the thread before each tick, and at least this often: whoever needs a steady eye on something.
  std::function<void()> look;
  int64_t look_interval_ns = 10'000'000;
};

// What to send for one pair. The pair's record is read (slot states) and written (interval_ns); it must outlive the
// prober.
struct ProbePlan {
  uint32_t pair = 0;
  cw_pair* shared = nullptr;
  std::shared_ptr<Transport> socket;
  std::vector<PlannedSlot> slots;  // none: silent
};

struct ProberStats {
  uint64_t ticks = 0;
  uint64_t rounds = 0;
  uint64_t probes = 0;
  uint64_t send_errors = 0;     // probes that the kernel refused
  uint64_t skipped_rounds = 0;  // not sent because the thread came too late
  int64_t lateness_p50_ns = 0;  // of ticks since the last call of stats(), by 1/4 octave
  int64_t lateness_p99_ns = 0;
  int64_t lateness_max_ns = 0;
  int64_t longest_interval_ns = 0;  // of pairs that carry data, as the budget stretches it
  bool realtime = false;
  double afforded_pps = 0;  // of the budget, what most_cpu leaves
  std::string cpus;         // that it was given and may use, as CpuListText writes them; "": any
  int64_t cpu_ns = 0;       // of the thread
  std::string last_error;
};

class Prober {
 public:
  // A refused SCHED_FIFO is a warning in the log, not an error; FailedPrecondition: none of the CPUs may be used. The
  // thread stays in the caller's network namespace, and has no capability once it runs.
  static absl::StatusOr<std::unique_ptr<Prober>> Start(const ProberOptions& options);
  virtual ~Prober() = default;

  virtual void SetPlan(ProbePlan plan) = 0;  // replaces the pair's
  virtual void SetCadence(const CadenceOptions& options) = 0;
  // Returns when the thread has let go of the pair's record.
  virtual void RemovePair(uint32_t pair) = 0;
  virtual void SetActive(uint32_t pair, bool carries_data) = 0;
  virtual void SetClock(uint32_t pair, ClockPace pace) = 0;
  // The pair's rounds come as if a slot of it were in doubt, for so long: somebody waits for fresh delays. Nothing
  // happens where they come at the active interval anyway, or while another pair's slot is in doubt: those come first.
  virtual void Hurry(uint32_t pair, int64_t for_ns) = 0;
  virtual ProberStats stats() = 0;
  // Present interval of the pair, 0: unknown pair.
  virtual int64_t IntervalNs(uint32_t pair) = 0;
  // Number of the newest round that was given to the kernel, which the programs see as cw_pair.cur_round; 0: none yet.
  virtual uint32_t Round(uint32_t pair) = 0;
};

}  // namespace cw::probe
