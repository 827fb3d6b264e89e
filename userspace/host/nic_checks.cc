// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/nic_checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::host {
namespace {

using NicResult = Check::Result;

constexpr int kRoceHeaders = 40 + 8 + 12 + 4 + 28 + 4;
constexpr int kWantedMtu = 4096;

// node_type "1: CA" is InfiniBand or RoCE, "4: RNIC" iWARP; with a network device under it, InfiniBand it is not.
bool IsRoce(const std::string& folder) {
  return !absl::StartsWith(ReadTrimmed(folder + "/node_type").value_or("1"), "4");
}

}  // namespace

std::vector<RdmaDevice> RdmaDevices(const Roots& roots, const std::vector<RdmaPort>& ports) {
  std::map<std::string, RdmaDevice> devices;
  for (const RdmaPort& port : ports) {
    RdmaDevice& device = devices[port.device];
    device.name = port.device;
    device.nics.push_back(port.nic);
  }
  std::vector<RdmaDevice> list;
  for (auto& [name, device] : devices) {
    const std::string folder = roots.sys + "/class/infiniband/" + name;
    device.driver = LinkName(folder + "/device/driver");
    device.roce = IsRoce(folder);
    // Soft-RoCE alone has the attribute "parent", which names its network device; its driver link is that device's.
    device.software = ReadTrimmed(folder + "/parent").has_value();
    list.push_back(std::move(device));
  }
  return list;
}

std::string RdmaDriver(const Roots& roots, const std::string& device) {
  const std::string folder = roots.sys + "/class/infiniband/" + device;
  if (ReadTrimmed(folder + "/parent").has_value()) return "rdma_rxe";
  return LinkName(folder + "/device/driver");
}

std::vector<std::string> CandidateNics(const std::vector<Interface>& interfaces,
                                       const std::vector<RdmaDevice>& devices) {
  std::set<std::string> with_rdma;
  for (const RdmaDevice& device : devices) with_rdma.insert(device.nics.begin(), device.nics.end());
  std::vector<std::string> rdma, bus, rest;
  for (const Interface& interface : interfaces) {
    if (interface.name == "lo") continue;
    if (with_rdma.count(interface.name) != 0) rdma.push_back(interface.name);
    if (interface.on_bus) bus.push_back(interface.name);
    rest.push_back(interface.name);
  }
  if (!rdma.empty()) return rdma;
  return bus.empty() ? rest : bus;
}

int RoceMtu(int device_mtu) {
  for (const int mtu : std::array{4096, 2048, 1024, 512, 256}) {
    if (device_mtu - kRoceHeaders >= mtu) return mtu;
  }
  return 0;
}

const Interface* FindInterface(const std::vector<Interface>& interfaces, const std::string& nic) {
  const auto at = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& i) { return i.name == nic; });
  return at == interfaces.end() ? nullptr : &*at;
}

Check CheckNicUp(const std::string& nic, const Interface* interface) {
  const std::string name = "link " + nic;
  if (interface == nullptr) {
    return {name, NicResult::kFail, "there is no such network device", "see ip link for names; correct [[nic]] name"};
  }
  if (interface->state == "up") return {name, NicResult::kOk, "up", ""};
  return {name, NicResult::kFail, interface->state,
          absl::StrFormat("ip link set %s up; check the cable and the switch port", nic)};
}

Check CheckMtu(const Interface& interface) {
  const std::string name = "mtu " + interface.name;
  const int mtu = interface.mtu;
  const int roce = RoceMtu(mtu);
  const std::string seen = roce == 0 ? absl::StrFormat("%d: no RoCE MTU fits", mtu)
                                     : absl::StrFormat("%d: carries a RoCE MTU of %d", mtu, roce);
  if (roce == kWantedMtu) return {name, NicResult::kOk, seen, ""};
  return {name, roce == 0 ? NicResult::kFail : NicResult::kWarn, seen,
          absl::StrFormat("for full speed set %d or more on every port of the fabric: ip link set %s mtu %d",
                          kWantedMtu + kRoceHeaders, interface.name, 4500)};
}

Check CheckOffload(const std::string& nic, const std::vector<RdmaDevice>& devices) {
  const std::string name = "rdma " + nic;
  std::vector<std::string> offloading, software;
  for (const RdmaDevice& device : devices) {
    if (!device.roce || std::find(device.nics.begin(), device.nics.end(), nic) == device.nics.end()) continue;
    if (device.offloads()) {
      offloading.push_back(device.driver.empty() ? device.name : device.name + " (" + device.driver + ")");
    } else {
      software.push_back(device.name);
    }
  }
  if (!offloading.empty()) {
    return {name, NicResult::kWarn,
            absl::StrFormat("%s carries RoCE past the kernel: its packets are not seen here",
                            absl::StrJoin(offloading, ", ")),
            "the kernel programs cannot measure or steer this NIC's queue pairs; nothing is attached to it by default"};
  }
  if (!software.empty()) {
    return {name, NicResult::kOk, absl::StrJoin(software, ", ") + ": soft-RoCE, its packets pass the kernel", ""};
  }
  return {name, NicResult::kOk, "no RDMA device: RoCE packets, if any, pass the kernel", ""};
}

Check CheckNicOffloads(const Interface& interface, bool generic) {
  const std::string name = "offloads " + interface.name;
  std::vector<std::string> seen, fixes;
  if (interface.strips_vlan && !interface.vlans.empty()) {
    seen.push_back(absl::StrCat("the NIC takes off VLAN tags before XDP sees them, and ",
                                absl::StrJoin(interface.vlans, ", "), " is on it"));
    fixes.push_back("rxvlan off");
  }
  if (interface.merges) {
    seen.push_back("large receive offload merges packets, and most drivers refuse XDP beside it");
    fixes.push_back("lro off");
  }
  if (generic && !interface.gathers_udp.empty()) {
    seen.push_back(absl::StrCat(absl::StrJoin(interface.gathers_udp, " and "),
                                " may make one packet of several before generic XDP counts them"));
    for (const std::string& feature : interface.gathers_udp) fixes.push_back(feature + " off");
  }
  std::string todo = fixes.empty() ? "" : absl::StrCat("ethtool -K ", interface.name, " ", absl::StrJoin(fixes, " "));
  if (!seen.empty()) return {name, NicResult::kWarn, absl::StrJoin(seen, "; "), std::move(todo)};
  std::string fine =
      interface.strips_vlan ? "VLAN tags are taken off before XDP, and no VLAN is on it" : "none that hides packets";
  if (interface.segments_udp)
    absl::StrAppend(&fine, "; it would cut UDP sent in one piece (tx-udp-segmentation), and no RoCE is sent so");
  return {name, NicResult::kOk, std::move(fine), ""};
}

// The kernel or the NIC cuts such a frame only after the program has seen it, so no switch of the NIC helps.
Check CheckGsoFrames(uint64_t frames) {
  if (frames == 0) return {"gso", NicResult::kOk, "no RoCE left in one piece to be cut behind the programs", ""};
  return {"gso", NicResult::kWarn,
          absl::StrFormat("%d frames to UDP 4791 left in one piece (GSO) since the counters began: not steered, and "
                          "their packets are not seen one by one",
                          frames),
          "if cwctl counters shows that gso_frames grows, find who sends RoCE with UDP_SEGMENT (soft-RoCE does not): a "
          "RoCE stack of its own, or a virtual machine's"};
}

namespace {

// When a driver opens a running device's queues anew: packets are lost meanwhile, on some the link goes down for a
// moment.
enum class Reopens : uint8_t {
  kNever,
  kFirstAndLast,  // when the first program comes, or the last one goes
  kEach,          // when one is exchanged, too, as each start of the agent does
};
// By the function of Linux that each driver's ndo_bpf leads to. Of drivers that nobody read nothing is said.
struct DriverAttach {
  const char* driver;
  Reopens reopens;
  const char* source;
};
constexpr std::array kDriverAttach = {
    DriverAttach{"mlx5_core", Reopens::kFirstAndLast, "mlx5e_xdp_set"},
    DriverAttach{"mlx4_en", Reopens::kFirstAndLast, "mlx4_xdp_set"},
    DriverAttach{"bnxt_en", Reopens::kEach, "bnxt_xdp_set"},
    DriverAttach{"ice", Reopens::kFirstAndLast, "ice_xdp_setup_prog"},
    DriverAttach{"i40e", Reopens::kFirstAndLast, "i40e_xdp_setup"},
    DriverAttach{"ixgbe", Reopens::kFirstAndLast, "ixgbe_xdp_setup"},
    DriverAttach{"igb", Reopens::kFirstAndLast, "igb_xdp_setup"},
    DriverAttach{"igc", Reopens::kEach, "igc_xdp_set_prog"},
    DriverAttach{"ena", Reopens::kFirstAndLast, "ena_xdp_set"},
    DriverAttach{"qede", Reopens::kEach, "qede_xdp_set"},
    DriverAttach{"nfp", Reopens::kFirstAndLast, "nfp_net_xdp_setup_drv"},
    DriverAttach{"virtio_net", Reopens::kNever, "virtnet_xdp_set"},
    DriverAttach{"veth", Reopens::kNever, "veth_xdp_set"},
    DriverAttach{"tun", Reopens::kNever, "tun_xdp_set"},
};

}  // namespace

Check CheckAttach(const Interface& interface, bool attached) {
  const std::string name = "attach " + interface.name;
  const auto known = std::find_if(kDriverAttach.begin(), kDriverAttach.end(),
                                  [&](const DriverAttach& entry) { return interface.driver == entry.driver; });
  if (known == kDriverAttach.end()) {
    const std::string driver = interface.driver.empty() ? "a driver without a name" : interface.driver;
    if (attached) return {name, NicResult::kOk, absl::StrCat("done (", driver, ")"), ""};
    return {name, NicResult::kUnknown,
            absl::StrCat("whether ", driver, " stops its queues when a program comes or goes is not known"),
            "attach it first while no job runs, and watch the link: ip monitor link"};
  }
  const std::string source = absl::StrCat(" (", known->source, " of Linux)");
  const bool each = known->reopens == Reopens::kEach;
  if (known->reopens == Reopens::kNever)
    return {name, NicResult::kOk, absl::StrCat(interface.driver, " goes on while a program comes or goes", source), ""};
  if (attached) {
    return {name, NicResult::kOk,
            absl::StrCat("done; this driver opened its queues anew for it",
                         each ? ", and does so when an upgrade exchanges it" : ""),
            ""};
  }
  return {name, NicResult::kWarn,
          absl::StrCat(interface.driver, " opens its queues anew when a program comes",
                       each ? ", goes or is exchanged" : " or goes", ": packets are lost meanwhile", source),
          each ? "start and upgrade the agent while no job runs; a restart of the same release leaves the program"
               : "start the agent while no job runs; restarts and upgrades disturb nothing"};
}

Check CheckClsact(const Interface& interface) {
  return {
      "clsact " + interface.name, NicResult::kWarn,
      "this kernel has no tcx (Linux 6.6): the first start adds clsact, which may drop packets that are queued then",
      absl::StrCat(
          "start the agent while no queue pair runs, let it wait for that (wait_for_idle = true in its [[nic]] "
          "table), or add it yourself then: tc qdisc add dev ",
          interface.name, " clsact")};
}

Check CheckRpFilter(const Roots& roots, const std::string& nic, size_t nics) {
  const std::string name = "rp_filter " + nic;
  const std::string root = roots.proc + "/sys/net/ipv4/conf/";
  int strictest = -1;
  // The kernel takes the larger of the two.
  for (const std::string& scope : {std::string("all"), nic}) {
    int value = 0;
    const std::optional<std::string> text = ReadTrimmed(root + scope + "/rp_filter");
    if (text && absl::SimpleAtoi(*text, &value)) strictest = std::max(strictest, value);
  }
  if (strictest < 0) return {name, NicResult::kUnknown, "not visible", "see sysctl net.ipv4.conf"};
  if (strictest == 0) return {name, NicResult::kOk, "off", ""};
  if (strictest == 2) return {name, NicResult::kOk, "loose", ""};
  if (nics < 2) return {name, NicResult::kOk, "strict; harmless with one NIC", ""};
  return {name, NicResult::kWarn, "strict: packets that arrive on another NIC than the route's are dropped",
          absl::StrFormat("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=2", nic)};
}

}  // namespace cw::host
