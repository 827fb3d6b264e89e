// SPDX-License-Identifier: Apache-2.0
// What the emulator's queue pairs are asked to do. Shapes and checks only; emulator.h runs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/lab/emulator_qp.h"

namespace cw::lab {

struct JobPair {
  int source = 0;  // index into EmulatorConfig::hosts
  int destination = 0;
};

enum class JobKind : uint8_t {
  kPairs,     // every pair goes at its own speed
  kAllToAll,  // every ordered pair of `hosts`; a round starts when all flows finished the one before
};

struct JobSpec {
  std::string name = "job";  // label of its queue pairs, at most 31 bytes reach the agent
  JobKind kind = JobKind::kPairs;
  std::vector<JobPair> pairs;  // kPairs
  std::vector<int> hosts;      // kAllToAll
  int qps_per_pair = 1;

  Operation operation = Operation::kWriteImm;
  uint64_t message_bytes = 1 << 20;
  uint64_t messages = 0;                              // per flow (kAllToAll: per flow and round); 0: until `duration`
  absl::Duration duration = absl::ZeroDuration();     // no message is posted later; zero: until `messages`
  int outstanding = 2;                                // messages posted at once
  int rounds = 1;                                     // kAllToAll
  absl::Duration start_after = absl::ZeroDuration();  // after Emulator::Start, or after AddJob when that runs already

  // > 0: on and off in turn, from the start on; messages are posted for `burst` out of each `burst_period`. What was
  // posted goes on, so let messages be short.
  absl::Duration burst = absl::ZeroDuration();
  absl::Duration burst_period = absl::ZeroDuration();

  absl::Duration packet_interval = absl::ZeroDuration();  // > 0: one packet per interval and flow
  RateConfig rate;
  uint32_t path_mtu = 4096;
  uint32_t window = 128;
  uint32_t ack_every = 16;
  uint8_t timeout = 14;
  uint8_t retry_cnt = 7;
  uint8_t tos = 106;                  // DSCP 26, ECT(0)
  std::optional<uint32_t> start_psn;  // both sides; none: 0, as NCCL does
};

// A sentence that says what is wrong, or OK. `hosts`: how many the emulator has.
absl::Status CheckJob(const JobSpec& job, int hosts);

// One entry per flow, qps_per_pair of them for each pair.
std::vector<JobPair> FlowsOf(const JobSpec& job);

// Transport settings of the job's queue pairs; QPNs are for the caller to fill in.
QpConfig QpConfigOf(const JobSpec& job);

}  // namespace cw::lab
