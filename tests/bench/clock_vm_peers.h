// SPDX-License-Identifier: Apache-2.0
//
// chrony and ptp4l in the machines of a rack, the server in machine 0 and the client in machine 1, configured as in the
// lab (clock_peer_text.h). Thread rule: one thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/clock_vm_truth.h"
#include "tests/vm/rack.h"

namespace cw::bench {

struct VmPeerReadings {
  std::vector<double> error_ns;  // what the client says of its clock − truth
  std::vector<double> bound_ns;  // what it says that it is wrong by at most; empty: it says nothing
};

// Ends with the object.
class VmPeer {
 public:
  enum class Kind { kChrony, kPtp4l };
  // What the machines' image needs for both kinds. NotFound names the package that is missing.
  static absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Files();
  static absl::StatusOr<std::unique_ptr<VmPeer>> Start(vm::Rack& rack, Kind kind);

  const char* name() const { return kind_ == Kind::kChrony ? "chrony" : "ptp4l"; }
  // Asks the client every `period` for `length`, from now on.
  absl::Status StartReading(absl::Duration length, absl::Duration period);
  // After that. Internal: a daemon has ended, or fewer than `least` readings could be compared with the truth.
  absl::StatusOr<VmPeerReadings> Read(const VmTruth& truth, size_t least);

 private:
  VmPeer(vm::Rack& rack, Kind kind) : rack_(rack), kind_(kind) {}
  std::string Folder() const;
  absl::Status StartDaemon(int machine);

  vm::Rack& rack_;
  Kind kind_;
  std::array<std::unique_ptr<vm::Command>, 2> daemons_;
  std::unique_ptr<vm::Command> poller_;
};

// Of the answers that `cw_vm_clock poll` wrote, what chronyd's and ptp4l's client said less the truth. Pure.
VmPeerReadings CompareChrony(const std::string& polled, const VmTruth& truth);
VmPeerReadings ComparePtp4l(const std::string& polled, const VmTruth& truth);

}  // namespace cw::bench
