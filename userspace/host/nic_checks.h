// SPDX-License-Identifier: Apache-2.0
//
// Checks of NICs and RDMA devices. Pure functions over file trees.
#pragma once

#include <string>
#include <vector>

#include "userspace/host/check.h"
#include "userspace/host/roots.h"

namespace cw::host {

struct RdmaDevice {
  std::string name;               // mlx5_0
  std::string driver;             // of its bus device; "" = unknown
  std::vector<std::string> nics;  // network devices of its ports
  bool software = false;          // soft-RoCE: its packets pass the kernel
  bool roce = false;              // not InfiniBand, not iWARP
  bool offloads() const { return roce && !software; }
};

// From /sys/class/infiniband.
std::vector<RdmaDevice> RdmaDevices(const Roots& roots);

// Devices worth a look when no configuration says which: those with an RDMA device, otherwise those on a bus, otherwise
// all but the loopback.
std::vector<std::string> CandidateNics(const Roots& roots);

// The largest RoCE MTU (payload bytes of a packet: 256 … 4096, 0 = none fits) that a device MTU carries. The headers
// are those that the kernel's iboe_get_mtu takes off: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 bytes.
int RoceMtu(int device_mtu);

Check CheckNicUp(const Roots& roots, const std::string& nic);
Check CheckMtu(const Roots& roots, const std::string& nic);
// Whether RoCE of this NIC passes the kernel.
Check CheckOffload(const std::string& nic, const std::vector<RdmaDevice>& devices);
// nics: all that the agent watches; strict filtering harms only where several share a subnet.
Check CheckRpFilter(const Roots& roots, const std::string& nic, size_t nics);

}  // namespace cw::host
