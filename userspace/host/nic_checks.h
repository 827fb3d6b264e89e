// SPDX-License-Identifier: Apache-2.0
//
// Checks of NICs and RDMA devices. Pure functions over what the kernel told (LiveProbe) and over file trees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/host/check.h"
#include "userspace/host/live.h"
#include "userspace/host/roots.h"

namespace cw::host {

struct RdmaDevice {
  std::string name;               // mlx5_0
  std::string driver;             // of its bus device; "" = unknown
  std::vector<std::string> nics;  // network devices of its ports, in this network namespace
  bool software = false;          // soft-RoCE: its packets pass the kernel
  bool roce = false;              // not iWARP
  bool offloads() const { return roce && !software; }
};

// Those over network devices of this namespace; what they are, from /sys/class/infiniband.
std::vector<RdmaDevice> RdmaDevices(const Roots& roots, const std::vector<RdmaPort>& ports);

// What drives it: rdma_rxe, or the driver of its bus device (mlx5_core, ice, bnxt_en, …); "" = not known.
std::string RdmaDriver(const Roots& roots, const std::string& device);

// Devices worth a look when no configuration says which: those with an RDMA device, otherwise those on a bus, otherwise
// all but the loopback.
std::vector<std::string> CandidateNics(const std::vector<Interface>& interfaces,
                                       const std::vector<RdmaDevice>& devices);

// The largest RoCE MTU (payload bytes of a packet: 256 … 4096, 0 = none fits) that a device MTU carries. The headers
// are those that the kernel's iboe_get_mtu takes off: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 bytes.
int RoceMtu(int device_mtu);

// nullptr: there is no such device.
const Interface* FindInterface(const std::vector<Interface>& interfaces, const std::string& nic);
Check CheckNicUp(const std::string& nic, const Interface* interface);
Check CheckMtu(const Interface& interface);
// Whether RoCE of this NIC passes the kernel.
Check CheckOffload(const std::string& nic, const std::vector<RdmaDevice>& devices);
// Offloads that hide from the programs what arrives, or the sizes of packets that leave. generic: so the ingress
// program is attached, behind what the kernel gathers.
Check CheckNicOffloads(const Interface& interface, bool generic = false);
Check CheckGsoFrames(uint64_t frames);  // of the host, by the programs' count
// Whether attaching natively stops the device's queues for a moment, by its driver. attached: it is over.
Check CheckAttach(const Interface& interface, bool attached);
// Before a first start on a kernel without tcx: what making clsact on this NIC can cost.
Check CheckClsact(const Interface& interface);
// nics: all that the agent watches; strict filtering harms only where several share a subnet.
Check CheckRpFilter(const Roots& roots, const std::string& nic, size_t nics);

}  // namespace cw::host
