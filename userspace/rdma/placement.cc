// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/placement.h"

namespace cw::rdma {
namespace {
constexpr uint32_t kPortBits = 0x3fff, kLabelBits = 0xfffff;
constexpr uint16_t kFirstPort = 0xc000;
}  // namespace

uint16_t PortOfLabel(uint32_t label) {
  return static_cast<uint16_t>(kFirstPort | ((label & kPortBits) ^ (label >> 14 & 0x3f)));
}

uint32_t LabelOfQpns(uint32_t lqpn, uint32_t rqpn) {
  uint64_t v = uint64_t{lqpn} * rqpn;
  v ^= v >> 20;
  v ^= v >> 40;
  return static_cast<uint32_t>(v & kLabelBits);
}

uint32_t LabelOfCmPorts(uint16_t connected, uint16_t listened) {
  return (uint32_t{connected} * 31 + listened) & kLabelBits;
}

std::optional<uint32_t> LabelOfPort(uint16_t port) {
  if (port < kFirstPort) return std::nullopt;
  const uint32_t low = port & kPortBits;
  // Label 0 means "none given": for its port the upper bits take part.
  return low != 0 ? low : (1u << 14 | 1u);
}

uint16_t PortOfQpns(uint32_t lqpn, uint32_t rqpn) { return PortOfLabel(LabelOfQpns(lqpn, rqpn)); }

const PathLoad* LeastLoaded(absl::Span<const PathLoad> paths, uint32_t turn) {
  const PathLoad* best = nullptr;
  for (size_t i = 0; i < paths.size(); ++i) {
    const PathLoad& path = paths[(turn + i) % paths.size()];
    if (!LabelOfPort(path.port)) continue;
    if (best == nullptr || path.queue_pairs < best->queue_pairs) best = &path;
  }
  return best;
}

}  // namespace cw::rdma
