// SPDX-License-Identifier: Apache-2.0
// Which path a queue pair gets when it connects, and the flow label that puts it there.
//
// Linux makes the UDP source port of a RoCEv2 connection from the flow label of its address vector, and the label from
// both QPNs where the application gave none (rdma_get_udp_sport in include/rdma/ib_verbs.h).
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace cw::rdma {

// The port of a label of 20 bits, in 0xC000–0xFFFF.
uint16_t PortOfLabel(uint32_t label);
// The label that Linux makes up from both QPNs where the application gave none (rdma_calc_flow_label); 0 for some.
uint32_t LabelOfQpns(uint32_t lqpn, uint32_t rqpn);
// The label that rdma_cm gives both ends of a connection of IPv4, and of IPv6 where the application set no flowinfo
// (cma_get_roce_udp_flow_label): of the ports of its two ends, the one that connected first.
uint32_t LabelOfCmPorts(uint16_t connected, uint16_t listened);
// A label that gives this port, never 0; nullopt below 0xC000, which no label gives.
std::optional<uint32_t> LabelOfPort(uint16_t port);

// The port of a connected queue pair without a label of its own (rdma_calc_flow_label, then as above).
uint16_t PortOfQpns(uint32_t lqpn, uint32_t rqpn);

struct PathLoad {
  uint8_t slot = 0;
  uint16_t port = 0;
  uint32_t queue_pairs = 0;  // that are on it
};

// The path with the fewest queue pairs of those whose port a label can give. Among equals the first from `turn` on, in
// turn, so that pairs of hosts do not all begin with the same. nullptr: there is none.
const PathLoad* LeastLoaded(absl::Span<const PathLoad> paths, uint32_t turn);

}  // namespace cw::rdma
