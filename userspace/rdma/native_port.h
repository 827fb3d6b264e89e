// SPDX-License-Identifier: Apache-2.0
//
// The UDP source port of a queue pair whose packets nobody here sees, and how it is known.
// Drivers that make it from the flow label (rdma_get_udp_sport, include/rdma/ib_verbs.h) as their kernel sources say:
// docs/hardware.md. Pure; any thread.
#pragma once

#include <string>

#include "userspace/rdma/inproc_server.h"

namespace cw::rdma {

enum class PortFrom {
  kUnknown,
  kPackets,  // seen on their way
  kOwner,    // told by its process
  kLabel,    // computed from the flow label that the kernel was given
  kQpns,     // computed from both QPNs, as the kernel does without a label: right unless the application gave one
};
const char* PortFromName(PortFrom from);  // "" = unknown, packets, owner, label, qpns

const char* QpStateName(uint8_t state);  // of enum ib_qp_state: RTR, RTS, …; "" = 0, not known

struct NativePort {
  uint16_t port = 0;  // 0: not known
  PortFrom from = PortFrom::kUnknown;
};

// driver: as RdmaDriver in host/nic_checks.h names it.
bool PortFollowsLabel(const std::string& driver);
// What the owner told counts for most.
NativePort NativePortOf(const QpInfo& qp, const std::string& driver);

}  // namespace cw::rdma
