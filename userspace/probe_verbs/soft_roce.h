// SPDX-License-Identifier: Apache-2.0
//
// Where a UD queue pair's UDP source port comes from. Drivers of NICs make it from the address handle's flow label
// (userspace/rdma/placement.h). Soft-RoCE gives a UD queue pair one port for life, from its number, and looks at no
// label (Linux, rxe_qp_init_req in drivers/infiniband/sw/rxe/rxe_qp.c: hash_32(qp_num, 14), of include/linux/hash.h):
// there, a choice of ports is a choice of queue pairs. Pure.
#pragma once

#include <cstdint>

namespace cw::probe_verbs {

inline constexpr uint16_t kFirstRocePort = 0xc000;

constexpr uint16_t SoftRocePort(uint32_t qpn) {
  constexpr uint32_t kGoldenRatio32 = 0x61c88647;
  constexpr int kBits = 14;
  return static_cast<uint16_t>(kFirstRocePort + (qpn * kGoldenRatio32 >> (32 - kBits)));
}

}  // namespace cw::probe_verbs
