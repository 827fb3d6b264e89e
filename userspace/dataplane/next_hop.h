// SPDX-License-Identifier: Apache-2.0
//
// The next hop of a packet, and its entry in the neighbour table. A device without a carrier, or whose far end is
// silent, loses its dynamic entries, and then the kernel keeps packets waiting for an address instead of handing them
// to tc egress, where NIC failover would carry them. While a pair is carried its next hop's entry is therefore made
// permanent. Of the calling thread's network namespace; one thread at a time.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

namespace cw::dataplane {

struct Neighbour {
  Addr address;
  std::array<uint8_t, 6> mac{};
  bool known = false;  // mac is meant
  bool permanent = false;
};

// What packets from `source` to `destination`, of one family, by the interface are given to. NotFound: no route.
absl::StatusOr<Neighbour> NextHop(uint32_t ifindex, const Addr& source, const Addr& destination);
absl::Status PinNeighbour(uint32_t ifindex, const Neighbour& neighbour);
// Dynamic again, verified on its next use; removed where the address is not known.
absl::Status UnpinNeighbour(uint32_t ifindex, const Neighbour& neighbour);

}  // namespace cw::dataplane
