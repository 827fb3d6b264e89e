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

struct cw_clock;  // libcwclock/cwclock.h

namespace cw::lab {

// RoCE flows between the hosts of different leaves with a ceiling per flow, such that each direction of each leaf-spine
// link carries `share` of its rate as long as flows stay where kernel ECMP puts them. agents: the hosts have agents,
// which are told of the queue pairs. timeout: their transport timer, 4.096 us * 2^timeout; eight of them without an
// answer, and a queue pair dies.
absl::StatusOr<std::unique_ptr<Emulator>> StartEvenLoad(const Fabric& fabric, bool agents, double share, uint64_t seed,
                                                        uint8_t timeout = 14);

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
  // Since the newest jump of the drift of either clock (by more than 1 ppm).
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

// The fleet times of two hosts at one true instant, as programs on them read it.
struct FleetPair {
  int host = 0;
  int other = 0;
  int64_t true_ns = 0;
  double difference_ns = 0;  // host's − other's: the truth is 0
  double error_est_ns = 0;   // both ends' likely errors together
  double bound_ns = 0;       // of host: speaks of its difference from the reference
  double since_step_s = 0;   // since the drift of one of the two changed
};

// Reads fleet time of all hosts at the same instant with libcwclock, at a fixed rate, on a thread of its own.
class FleetSampler {
 public:
  static absl::StatusOr<std::unique_ptr<FleetSampler>> Start(Testbed& testbed, const Truth& truth,
                                                             absl::Duration period);
  ~FleetSampler();
  void Stop();
  // After Stop; all ordered pairs of hosts that did not refuse and have the same timeline.
  const std::vector<FleetPair>& pairs() const { return pairs_; }
  uint64_t refused() const { return refused_; }    // readings in which a host refused, or two had different timelines
  uint64_t readings() const { return readings_; }  // each of all hosts
  const std::string& refusal() const { return refusal_; }  // the last one's reason

 private:
  FleetSampler(const Truth& truth, std::vector<cw_clock*> pages) : truth_(truth), pages_(std::move(pages)) {}
  void Run(absl::Duration period);
  void ReadAll();

  Truth truth_;
  std::vector<cw_clock*> pages_;  // by host
  std::vector<FleetPair> pairs_;
  uint64_t refused_ = 0, readings_ = 0;
  std::string refusal_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The host that the bounds are told of, when all hosts name the same one; Unavailable otherwise.
absl::StatusOr<int> FleetReference(Testbed& testbed);

// Asks each agent at a fixed rate, on a thread per agent.
class ClockSampler {
 public:
  ClockSampler(Testbed& testbed, const Truth& truth, absl::Duration period);
  ~ClockSampler();
  void Stop();
  const std::vector<PairSample>& pairs() const { return pairs_; }  // after Stop
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  struct Host {
    std::vector<PairSample> pairs;
    std::string failure;
  };
  void Run(int host, absl::Duration period);
  absl::Status AskPairs(int host, api::Client& client);

  Testbed& testbed_;
  Truth truth_;
  std::vector<Host> hosts_;
  std::vector<PairSample> pairs_;
  std::vector<std::string> failures_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cw::lab
