// SPDX-License-Identifier: Apache-2.0
//
// The next hop of a packet, and its entry in the neighbour table. A device without a carrier, or whose far end is
// silent, loses its dynamic entries, and then the kernel keeps packets waiting for an address instead of handing them
// to tc egress, where NIC failover would carry them. While a pair is carried its next hop's entry is therefore made
// permanent. IPv4; of the calling thread's network namespace; one thread at a time.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::dataplane {

struct Neighbour {
  uint32_t address = 0;  // host order
  std::array<uint8_t, 6> mac{};
  bool known = false;  // mac is meant
  bool permanent = false;
};

// What packets from `source` to `destination` (host order) by the interface are given to. NotFound: no route.
absl::StatusOr<Neighbour> NextHop(uint32_t ifindex, uint32_t source, uint32_t destination);
absl::Status PinNeighbour(uint32_t ifindex, const Neighbour& neighbour);
// Dynamic again, verified on its next use; removed where the address is not known.
absl::Status UnpinNeighbour(uint32_t ifindex, const Neighbour& neighbour);

}  // namespace cw::dataplane
