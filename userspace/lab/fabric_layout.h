// SPDX-License-Identifier: Apache-2.0
//
// Names, addresses and numbers of the lab's parts: pure functions of the spec. fabric.h describes them for users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

absl::Status Validate(const FabricSpec& spec);  // InvalidArgument with the field's name
absl::Status ValidateLabName(const std::string& lab);

std::string LeafName(const std::string& lab, int leaf);  // namespaces
std::string SpineName(const std::string& lab, int spine);
std::string HostName(const std::string& lab, int host);
std::string MgmtName(const std::string& lab);
bool IsNamespaceOf(const std::string& lab, const std::string& netns);
std::string LabOf(const std::string& netns);  // "" when the namespace is of no lab
std::vector<std::string> NamespacesOf(const FabricSpec& spec);

std::string LabRunDir(const std::string& lab);

int LinkNumber(int leaf, int spine);             // 0 … LAB_SPINE_DIRS / 2 − 1
int DirectionNumber(const LinkDirection& link);  // as in bpf/lab/switch_abi.h
int LeafPortIfindex(int leaf, int spine);
int SpinePortIfindex(int leaf, int spine);
int HostPortIfindex(int port);
// MAC addresses follow the interface index; `far` is the host's own end of a host link.
std::string Mac(int ifindex, bool far = false);

std::string LeafAddr(int leaf, int spine);   // 10.1.<spine>.<2*leaf+1>, of the leaf's port to that spine
std::string SpineAddr(int leaf, int spine);  // 10.1.<spine>.<2*leaf>
std::string Gateway(int leaf);
std::string HostAddress(const FabricSpec& spec, int host);
std::string HostMgmtAddress(int host);

// The switch port that sends into a link direction: its namespace and device. Host → leaf: the host's eth0.
struct SwitchPort {
  std::string netns;
  std::string device;
};
SwitchPort SendingPort(const FabricSpec& spec, const LinkDirection& link);
SwitchPort ReceivingPort(const FabricSpec& spec, const LinkDirection& link);

// The leaf's route to another leaf's hosts over the given spines, for ip -batch, after "route replace ".
std::string EcmpRoute(int leaf, int remote_leaf, const std::vector<int>& spines);
// The leaf's static neighbour on an uplink, for ip -batch; again after the port was down, which flushes it.
std::string UplinkNeighbour(int leaf, int spine);
// Of a lab of IPv6.
std::string Address6(const std::string& ipv4);  // fd00:: and the IPv4 address, as inet_ntop() writes it
std::string LinkLocal(int ifindex);             // of a switch's port
std::string EcmpRoute6(int leaf, int remote_leaf, const std::vector<int>& spines);
std::vector<std::string> UplinkLines6(int leaf, int spine);  // what a port that goes down forgets
// "tbf rate … burst … limit …" for tc.
std::string Shaper(const FabricSpec& spec, double mbps);
std::string PausedShaper(const FabricSpec& spec);

}  // namespace cw::lab
