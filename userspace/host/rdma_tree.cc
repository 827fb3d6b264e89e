// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/rdma_tree.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace cw::host {
namespace {

constexpr size_t kMaxGidSlots = 1024;  // of one port

std::string Text(const std::string& path) { return ReadTrimmed(path).value_or(""); }

// Files as state have "4: ACTIVE".
std::string WordBehindNumber(const std::string& path) {
  const std::string text = Text(path);
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

uint32_t Number(const std::string& text) {
  uint32_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// RoCE v1 and InfiniBand have one word for both, "IB/RoCE v1".
GidType TypeOf(const std::string& text, bool ethernet) {
  if (text == "RoCE v2") return GidType::kRoceV2;
  return ethernet ? GidType::kRoceV1 : GidType::kIb;
}

std::vector<Gid> ReadGids(const std::string& port, bool ethernet) {
  std::vector<Gid> gids;
  for (const std::string& slot : ListFolder(port + "/gids")) {
    uint32_t index = 0;
    if (!absl::SimpleAtoi(slot, &index) || index >= kMaxGidSlots) continue;
    const absl::StatusOr<Addr> address = Addr::Parse(Text(port + "/gids/" + slot));
    if (!address.ok() || address->is_zero()) continue;
    // A type cannot be read where the slot is empty, which InfiniBand's default GID never is.
    const std::string type = Text(port + "/gid_attrs/types/" + slot);
    gids.push_back({.index = index,
                    .address = *address,
                    .type = TypeOf(type, ethernet),
                    .netdev = Text(port + "/gid_attrs/ndevs/" + slot)});
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

// The device's GIDs name the network device (that of the bond, where there is one). A port without any: its bus
// device's, which two ports of one function share and tell apart by dev_port.
std::string NetdevOf(const std::string& device, const RdmaTreePort& port) {
  for (const Gid& gid : port.gids) {
    if (!gid.netdev.empty()) return gid.netdev;
  }
  if (const std::string parent = Text(device + "/parent"); !parent.empty()) return parent;
  const std::string folder = device + "/device/net";
  const std::vector<std::string> netdevs = ListFolder(folder);
  for (const std::string& netdev : netdevs) {
    if (netdevs.size() == 1 || Number(Text(folder + "/" + netdev + "/dev_port")) + 1 == port.number) return netdev;
  }
  return "";
}

RdmaTreePort ReadPort(const std::string& device, uint32_t number) {
  const std::string folder = absl::StrCat(device, "/ports/", number);
  RdmaTreePort port;
  port.number = number;
  port.state = WordBehindNumber(folder + "/state");
  port.physical_state = WordBehindNumber(folder + "/phys_state");
  port.link_layer = Text(folder + "/link_layer");
  port.rate = Text(folder + "/rate");
  port.rate_bps = RateBps(port.rate);
  port.gids = ReadGids(folder, port.ethernet());
  port.counters = ReadCounters(folder + "/hw_counters");
  port.netdev = NetdevOf(device, port);
  return port;
}

RdmaTreeNic ReadNic(const std::string& folder, const std::string& name) {
  const std::string device = folder + "/" + name;
  RdmaTreeNic nic;
  nic.name = name;
  nic.driver = LinkName(device + "/device/driver");
  if (const std::string bus = LinkName(device + "/device"); absl::StrContains(bus, ':')) nic.bus = bus;
  nic.node_guid = Text(device + "/node_guid");
  nic.sys_image_guid = Text(device + "/sys_image_guid");
  nic.firmware = Text(device + "/fw_ver");
  nic.hca_type = Text(device + "/hca_type");
  nic.board_id = Text(device + "/board_id");
  nic.iwarp = absl::StartsWith(Text(device + "/node_type"), "4");  // "4: RNIC"
  nic.software = ReadTrimmed(device + "/parent").has_value();
  nic.physical_function = LinkName(device + "/device/physfn");
  nic.virtual_functions = Number(Text(device + "/device/sriov_numvfs"));
  if (!absl::SimpleAtoi(Text(device + "/device/numa_node"), &nic.numa_node)) nic.numa_node = -1;
  if (nic.software) nic.bus.clear(), nic.physical_function.clear(), nic.virtual_functions = 0;  // its network device's
  for (const std::string& port : ListFolder(device + "/ports")) {
    if (const uint32_t number = Number(port); number > 0) nic.ports.push_back(ReadPort(device, number));
  }
  std::sort(nic.ports.begin(), nic.ports.end(),
            [](const RdmaTreePort& a, const RdmaTreePort& b) { return a.number < b.number; });
  return nic;
}

NetdevFacts ReadNetdev(const Roots& roots, const std::string& name) {
  const std::string folder = roots.sys + "/class/net/" + name;
  NetdevFacts facts;
  facts.state = Text(folder + "/operstate");
  facts.mtu = static_cast<int>(Number(Text(folder + "/mtu")));
  facts.master = LinkName(folder + "/master");
  const std::string mode = Text(folder + "/bonding/mode");  // "802.3ad 4"
  facts.bond_mode = mode.substr(0, mode.find(' '));
  if (!mode.empty()) {
    facts.bond_members = absl::StrSplit(Text(folder + "/bonding/slaves"), ' ', absl::SkipEmpty());
  }
  return facts;
}

}  // namespace

const char* GidTypeName(GidType type) {
  switch (type) {
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
    case GidType::kIb:
      break;
  }
  return "IB";
}

std::string GidText(const Addr& gid) {
  std::string text;
  for (size_t i = 0; i < gid.bytes.size(); i += 2)
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
  return text;
}

CounterValues ReadCounters(const std::string& folder) {
  CounterValues counters;
  for (const std::string& name : ListFolder(folder)) {
    uint64_t value = 0;
    if (name != "lifespan" && absl::SimpleAtoi(Text(folder + "/" + name), &value)) counters.emplace_back(name, value);
  }
  return counters;
}

double RateBps(const std::string& rate) {
  const std::vector<std::string> words = absl::StrSplit(rate, ' ', absl::SkipEmpty());
  double gbit = 0;
  return words.size() >= 2 && words[1] == "Gb/sec" && absl::SimpleAtod(words[0], &gbit) ? gbit * 1e9 : 0;
}

RdmaTree ReadRdmaTree(const Roots& roots) {
  const std::string folder = roots.sys + "/class/infiniband";
  RdmaTree tree;
  for (const std::string& name : ListFolder(folder)) {
    if (tree.nics.size() >= kMaxRdmaNics) break;
    tree.nics.push_back(ReadNic(folder, name));
  }
  std::set<std::string> wanted;
  for (const RdmaTreeNic& nic : tree.nics) {
    for (const RdmaTreePort& port : nic.ports) wanted.insert(port.netdev);
  }
  wanted.erase("");
  for (const std::string& name : wanted) {
    const NetdevFacts facts = tree.netdevs[name] = ReadNetdev(roots, name);
    for (const std::string& member : facts.bond_members) tree.netdevs[member] = ReadNetdev(roots, member);
  }
  return tree;
}

void AddInterfaces(const std::vector<Interface>& interfaces, const std::vector<RdmaPort>& ports, RdmaTree& tree) {
  for (RdmaTreeNic& nic : tree.nics) {
    if (nic.ports.size() != 1 || !nic.ports[0].netdev.empty()) continue;
    for (const RdmaPort& port : ports) {
      if (port.device != nic.name) continue;
      nic.ports[0].netdev = port.nic;
      tree.netdevs.try_emplace(port.nic);
    }
  }
  for (const Interface& interface : interfaces) {
    const auto known = tree.netdevs.find(interface.name);
    if (known == tree.netdevs.end()) continue;
    known->second.state = interface.state;
    known->second.mtu = interface.mtu;
  }
}

std::string PortStates(const Roots& roots) {
  const std::string folder = roots.sys + "/class/infiniband";
  std::string all;
  for (const std::string& name : ListFolder(folder)) {
    for (const std::string& port : ListFolder(folder + "/" + name + "/ports")) {
      const std::string at = absl::StrCat(folder, "/", name, "/ports/", port);
      absl::StrAppend(&all, name, "/", port, " ", Text(at + "/state"), " ", Text(at + "/phys_state"), "\n");
    }
  }
  return all;
}

}  // namespace cw::host
