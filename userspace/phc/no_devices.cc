// SPDX-License-Identifier: Apache-2.0
// A build without CW_PHC: no NIC has a clock of its own.
#include "userspace/phc/phc_clock.h"

namespace cw::phc {

absl::StatusOr<int> PhcIndexOf(const std::string&) {
  return absl::NotFoundError("this build of cwfabric reads no clocks of NICs (CW_PHC)");
}

absl::StatusOr<std::unique_ptr<PhcClock>> PhcClock::Open(const std::string&, std::shared_ptr<const Clock>) {
  return absl::NotFoundError("this build of cwfabric reads no clocks of NICs (CW_PHC)");
}

std::optional<sync::CrossStamp> PhcClock::Read() { return std::nullopt; }

}  // namespace cw::phc
