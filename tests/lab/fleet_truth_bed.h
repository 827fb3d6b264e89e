// SPDX-License-Identifier: Apache-2.0
//
// Three racks of two hosts with a real agent each and one cwfleetd, which stays up through many faults, and what can be
// done to them. What the service says is read as an operator reads it, from cwctl.
//
// Errors are Status. One thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/lab/fleet_truth_case.h"
#include "tests/lab/fleet_truth_load.h"
#include "userspace/lab/fleet_bed.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

struct TruthBedSpec {
  std::string lab = "fleettruth";
  std::string mode = "protect";
  int spines = 3;
  bool two_nics = false;  // a host's eth1 is on the leaf after its own
};

class TruthBed {
 public:
  // Returns when the service knows all hosts and links.
  static absl::StatusOr<std::unique_ptr<TruthBed>> Up(const TruthBedSpec& spec);
  ~TruthBed();

  Testbed& testbed() { return *testbed_; }
  Fabric& fabric() { return testbed_->fabric(); }
  absl::StatusOr<std::vector<Said>> Findings() const;  // all, those that are over, too
  bool Quiet() const;                                  // nothing is open
  std::string Why() const { return bed_->Log(); }

  absl::Status SetCable(int leaf, int spine, const Fault& fault);  // both directions
  absl::Status Send(const JobSpec& job);
  void StopSending();
  void Starve(int host);
  void Feed() { starved_.reset(); }
  struct FlapTimes {
    absl::Duration down, up;
  };
  // The cable goes and comes back so many times, each time for what `next` says, in a thread of its own.
  void Flap(int leaf, int spine, int times, std::function<FlapTimes()> next);
  absl::Status EndFlaps();

 private:
  TruthBed() = default;
  absl::Status Start(const TruthBedSpec& spec);
  bool SeesAll() const;

  std::string folder_;
  std::unique_ptr<FleetBed> bed_;  // goes last: agents have its files
  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<Emulator> emulator_;
  std::unique_ptr<Starved> starved_;
  std::atomic<bool> stop_flaps_{false};
  std::thread flaps_;
};

struct TruthPace {
  absl::Duration quiet = absl::Seconds(20);  // after each, in which nothing may open
  double lasts = 1;                          // of each case's own time
};

// Does all of these at once, waits for what is found, mends them, and waits until that is over.
std::vector<TruthRow> Try(TruthBed& bed, const std::vector<const TruthCase*>& cases, const TruthPace& pace,
                          const std::string& group);
// Nothing may open on a healthy fabric, nor may it have since the service began: a row of its own.
TruthRow TryNothing(TruthBed& bed, absl::Duration time, const std::string& group);

}  // namespace cw::lab
