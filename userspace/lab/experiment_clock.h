// SPDX-License-Identifier: Apache-2.0
//
// What the fleet's clocks are worth on the lab's fabric: hosts with hidden clocks, every leaf-spine link loaded alike,
// and samples of what each agent says beside the exactly known truth.
//
// A sample is a line (value and slope at a local time), so how late it was fetched is no error of its own: the truth is
// taken for the very local time that the line is told for. All times without another word: CLOCK_MONOTONIC ns, the true
// time of the lab.
// Thread rule: one thread, besides the sampler's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/emulator.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

// RoCE flows between the hosts of different leaves with a ceiling per flow, such that each direction of each leaf-spine
// link carries `share` of its rate as long as flows stay where kernel ECMP puts them.
absl::StatusOr<std::unique_ptr<Emulator>> StartEvenLoad(Testbed& testbed, double share, uint64_t seed);

// Load of the leaf-spine links between two readings, as the switches counted it.
class LoadMeter {
 public:
  explicit LoadMeter(const Fabric& fabric) : fabric_(fabric) { Restart(); }
  void Restart();
  std::vector<double> Shares() const;  // of the link's rate since Restart, one per direction of each leaf-spine link

 private:
  std::vector<std::pair<int64_t, uint64_t>> Read() const;  // time, bytes
  const Fabric& fabric_;
  std::vector<std::pair<int64_t, uint64_t>> start_;
};

// The hosts' hidden clocks as pinned, seen from outside.
class Truth {
 public:
  static absl::StatusOr<Truth> Read(const Fabric& fabric);
  // True time at which the host's local clock shows local_ns. Within 1 ns.
  int64_t TrueNs(int host, int64_t local_ns) const;
  int64_t LocalNs(int host, int64_t true_ns) const;
  int64_t OffsetNs(int from, int to, int64_t true_ns) const;  // to's clock − from's
  // Since the newest change of the drift of either clock.
  absl::Duration SinceDriftStep(int from, int to, int64_t true_ns) const;

 private:
  std::vector<cw_lab_clock> clocks_;
};

// What one agent says about the clock of one peer, with the truth.
struct PairSample {
  int host = 0;
  int peer = 0;
  bool synced = false;
  int64_t true_ns = 0;
  double error_ns = 0;  // estimate − truth
  double error_est_ns = 0;
  double bound_ns = 0;
  double since_step_s = 0;  // since the drift of one of the two changed
};

// What one agent says about fleet time: a straight line over its local clock,
// fleet = local + offset_ns + rate_ppb / 10^9 · (local − line_ns).
struct FleetSample {
  bool usable = false;
  int64_t true_ns = 0;  // when it was told
  int64_t line_ns = 0;
  int64_t offset_ns = 0;
  double rate_ppb = 0;
  double error_est_ns = 0;
  double bound_ns = 0;
  std::string timeline;
  std::string reference;
};

// The fleet times of two hosts at one true instant.
struct FleetPair {
  int host = 0;
  int other = 0;
  bool usable = false;        // both have fleet time, on one timeline
  double difference_ns = 0;   // host's − other's: the truth is 0
  double error_est_ns = 0;    // both ends' likely errors together
  double bound_ns = 0;        // of host; what it is about is the fleet time of `reference`
  bool is_reference = false;  // other is host's reference, so that bound_ns speaks of this difference
  double since_step_s = 0;
};

// Asks each agent at a fixed rate, on a thread per agent.
class ClockSampler {
 public:
  ClockSampler(Testbed& testbed, const Truth& truth, absl::Duration period);
  ~ClockSampler();
  void Stop();
  // After Stop. Each sample of fleet time is compared with the newest one of each other host: at most one period older,
  // continued along its own line.
  const std::vector<PairSample>& pairs() const { return pairs_; }
  const std::vector<FleetPair>& fleet() const { return fleet_; }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  struct Host {
    std::vector<PairSample> pairs;
    std::vector<FleetSample> fleet;
    std::string failure;
  };
  void Run(int host, absl::Duration period);
  absl::Status AskPairs(int host, api::Client& client);
  absl::Status AskFleet(int host, api::Client& client);
  double FleetNs(int host, const FleetSample& line, int64_t true_ns) const;  // less true_ns
  void ComparePair(int host, int other);

  Testbed& testbed_;
  Truth truth_;
  std::vector<Host> hosts_;
  std::vector<PairSample> pairs_;
  std::vector<FleetPair> fleet_;
  std::vector<std::string> failures_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cw::lab
