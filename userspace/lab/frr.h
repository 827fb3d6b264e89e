// SPDX-License-Identifier: Apache-2.0
//
// FRRouting on the lab's switches: eBGP between leaves and spines (RFC 7938) with BFD (RFC 5880) and ECMP, in place of
// the lab's static routes. It is what benchmarks compare recovery with; the product knows nothing of it.
//
// Each switch namespace runs zebra, bgpd and bfdd of Debian's package frr. They belong to the lab: Fabric::Down ends
// them too. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/fabric_process.h"

namespace cw::lab {

struct FrrSpec {
  absl::Duration bfd_interval = absl::Milliseconds(300);  // sending and receiving; FRR's default, at least 10 ms
  int bfd_multiplier = 3;                                 // packets missed in a row; FRR's default
};

class FrrRouting {
 public:
  // Takes the lab's own routes between leaves away and returns when every leaf has all spines in its routes again.
  // NotFound: frr is not installed. DeadlineExceeded: they did not come.
  static absl::StatusOr<std::unique_ptr<FrrRouting>> Start(Fabric& fabric, const FrrSpec& spec);
  ~FrrRouting();

  // Fabric::SetLinkUp gives a leaf its static routes back, which go before BGP's: takes them away again.
  absl::Status DropStaticRoutes() const;
  // Every leaf reaches every other one over all spines, every spine all leaves, and BGP knows every BFD session to be
  // up.
  absl::Status WaitComplete(absl::Duration limit) const;

 private:
  explicit FrrRouting(Fabric& fabric) : fabric_(fabric) {}
  absl::Status StartSwitch(const std::string& netns, const std::string& bgp, const FrrSpec& spec);
  absl::StatusOr<bool> Complete() const;

  Fabric& fabric_;
  std::vector<ProcessId> processes_;
  std::vector<std::string> folders_;  // FRR's, one per switch
};

}  // namespace cw::lab
