// SPDX-License-Identifier: Apache-2.0
//
// What bench-failover runs: kinds of faults, and systems that are to see them. Pure but for Settings::FromEnvironment.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/config/config.h"
#include "userspace/lab/experiment_failover.h"

namespace cw::bench {

struct FailoverCase {
  const char* name;
  lab::CutKind kind;
  double background = 0;
  const char* mode = "protect";  // loaded cases need flows to be spread again after each cut, or the load gathers
  double drop_share = 0;
  int hold_ms = 400;  // of a cut
  bool tails = false;
  bool frr = false;  // FRR runs it, too, without BENCH_FULL: one of each kind of fault
  lab::AgentFault agent_fault = lab::AgentFault::kNone;
  int timeout = 0;  // of the measured queue pairs, 0: Settings::timeout
};
const std::vector<FailoverCase>& FailoverCases();

struct FailoverSystem {
  const char* name;
  bool agents = false;
  int bfd_ms = 0;   // 0: static routes
  int hold_ms = 0;  // at least, of a cut
};
const std::vector<FailoverSystem>& FailoverSystems();

enum class Sight {
  kMay,     // whether it sees the fault is to be measured
  kCannot,  // by design: nothing that it looks at changes
  kNoAgent  // the fault is an agent's, and there is none
};
Sight SightOf(const FailoverSystem& system, const FailoverCase& c);
// In all cases of these kinds flows go on before the fault is repaired, where it is seen. Otherwise only stalls count.
bool HasRecovery(const FailoverCase& c);

struct Settings {
  bool full = false;                                             // BENCH_FULL
  int cuts = 0;                                                  // BENCH_CUTS; 0: by system
  uint8_t timeout = 14;                                          // BENCH_TIMEOUT: 4.096 us * 2^timeout; 14 is 67 ms
  double agent_away_s = 3;                                       // BENCH_AGENT_AWAY_S; 60 with BENCH_FULL
  absl::Duration patience = config::Config().liveness.patience;  // BENCH_PATIENCE_MS; 0: the rule never learns
  // InvalidArgument: a variable is no number, or outside of its range.
  static absl::StatusOr<Settings> FromEnvironment();
};

lab::FailoverSpec SpecOf(const FailoverCase& c, const FailoverSystem& system, const Settings& settings);

}  // namespace cw::bench
