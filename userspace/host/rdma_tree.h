// SPDX-License-Identifier: Apache-2.0
//
// RDMA devices as the kernel's file trees show them: /sys/class/infiniband and the network devices beside it.
// Formats: Linux, Documentation/ABI/stable/sysfs-class-infiniband and drivers/infiniband/core/sysfs.c;
// Documentation/networking/bonding.rst for bonds; drivers/pci/iov.c for physfn and virtfn.
// What cannot be read is empty or 0. Takes a few milliseconds for each device; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "userspace/host/live.h"
#include "userspace/host/roots.h"
#include "userspace/model/addr.h"

namespace cw::host {

enum class GidType { kIb, kRoceV1, kRoceV2 };
const char* GidTypeName(GidType type);  // "IB", "RoCE v1", "RoCE v2"
// As its file has it: eight groups of four digits.
std::string GidText(const Addr& gid);

struct Gid {
  uint32_t index = 0;
  Addr address;  // the GID itself: IPv4 as ::ffff:a.b.c.d
  GidType type = GidType::kIb;
  std::string netdev;
  bool operator==(const Gid&) const = default;
};

struct NetdevFacts {
  std::string state;  // as ip link has it: up, down, …
  int mtu = 0;        // bytes
  std::string master;
  std::string bond_mode;                  // 802.3ad; "" = it is no bond
  std::vector<std::string> bond_members;  // network devices
};

using CounterValues = std::vector<std::pair<std::string, uint64_t>>;  // by name

struct RdmaTreePort {
  uint32_t number = 0;
  std::string state;           // ACTIVE, DOWN, INIT, ARMED, ACTIVE_DEFER
  std::string physical_state;  // LinkUp, Disabled, Polling, …
  std::string link_layer;      // Ethernet, InfiniBand
  std::string rate;            // "400 Gb/sec (4X NDR)"
  double rate_bps = 0;
  std::string netdev;
  std::vector<Gid> gids;    // those in use
  CounterValues counters;   // hw_counters
  uint32_t active_mtu = 0;  // bytes; files do not tell it: whoever asks the device fills it in
  bool ethernet() const { return link_layer == "Ethernet"; }
  bool active() const { return state == "ACTIVE"; }
};

struct RdmaTreeNic {
  std::string name;
  std::string driver;  // of its bus device; soft-RoCE: of its network device's
  std::string bus;     // PCI address; "" = none
  std::string node_guid, sys_image_guid, firmware, hca_type, board_id;
  bool iwarp = false;
  bool software = false;          // soft-RoCE
  std::string physical_function;  // PCI address; "" = it is no virtual function
  uint32_t virtual_functions = 0;
  int numa_node = -1;
  std::vector<RdmaTreePort> ports;
};

struct RdmaTree {
  std::vector<RdmaTreeNic> nics;               // by name
  std::map<std::string, NetdevFacts> netdevs;  // those of ports, and members of bonds
};

inline constexpr size_t kMaxRdmaNics = 512;  // more are not looked at: hosts with hundreds of virtual functions

RdmaTree ReadRdmaTree(const Roots& roots);
// Of the present network namespace, which /sys need not show: what the kernel tells counts for more.
void AddInterfaces(const std::vector<Interface>& interfaces, const std::vector<RdmaPort>& ports, RdmaTree& tree);

// One folder's counters: files with one number each; "lifespan" is a setting.
CounterValues ReadCounters(const std::string& folder);
// "400 Gb/sec (4X NDR)" in bits per second; 0 = not understood.
double RateBps(const std::string& rate);
// Name, state and physical state of every port: one text, to be compared. Costs little.
std::string PortStates(const Roots& roots);

}  // namespace cw::host
