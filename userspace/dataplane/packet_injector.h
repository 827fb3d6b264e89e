// SPDX-License-Identifier: Apache-2.0
//
// Delivers a packet into this host's own receive path, as if the NIC had taken it from the wire: a two-instruction XDP
// program, attached to nothing, is run over it by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, and passes it up.
// Kernel 5.18 and later; the interface's driver needs no XDP. Programs attached natively to the interface do not see
// the packet, generic ones do. Costs some 20 us.
// Thread rule: one thread at a time; that thread's network namespace.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {

class PacketInjector {
 public:
  static constexpr size_t kMaxPacket = 1500;

  // Unimplemented: the kernel cannot. Tried once, with a packet that goes nowhere.
  static absl::StatusOr<PacketInjector> Create();

  // packet: from its IPv4 or IPv6 header on. FailedPrecondition: no Ethernet device. InvalidArgument: longer than
  // kMaxPacket.
  absl::Status Deliver(uint32_t ifindex, absl::Span<const uint8_t> packet) const;

 private:
  explicit PacketInjector(maps::UniqueFd pass) : pass_(std::move(pass)) {}
  maps::UniqueFd pass_;
};

}  // namespace cw::dataplane
