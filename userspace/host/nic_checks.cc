// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/nic_checks.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::host {
namespace {

namespace fs = std::filesystem;
using Result = Check::Result;

constexpr int kRoceHeaders = 40 + 8 + 12 + 4 + 28 + 4;
constexpr int kWantedMtu = 4096;

std::string LinkName(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return error ? "" : target.filename().string();
}

std::vector<std::string> NicsOf(const std::string& folder) {
  std::set<std::string> nics;
  for (const std::string& port : ListFolder(folder + "/ports")) {
    const std::string table = folder + "/ports/" + port + "/gid_attrs/ndevs";
    for (const std::string& entry : ListFolder(table)) {
      const std::optional<std::string> nic = ReadTrimmed(table + "/" + entry);
      if (nic && !nic->empty()) nics.insert(*nic);
    }
  }
  if (nics.empty()) {
    for (const std::string& nic : ListFolder(folder + "/device/net")) nics.insert(nic);
  }
  return {nics.begin(), nics.end()};
}

bool HasRocePort(const std::string& folder) {
  // node_type "1: CA" is InfiniBand or RoCE, "4: RNIC" iWARP.
  if (!absl::StartsWith(ReadTrimmed(folder + "/node_type").value_or(""), "1")) return false;
  for (const std::string& port : ListFolder(folder + "/ports")) {
    if (ReadTrimmed(folder + "/ports/" + port + "/link_layer").value_or("") == "Ethernet") return true;
  }
  return false;
}

}  // namespace

std::vector<RdmaDevice> RdmaDevices(const Roots& roots) {
  std::vector<RdmaDevice> devices;
  const std::string root = roots.sys + "/class/infiniband";
  for (const std::string& name : ListFolder(root)) {
    const std::string folder = root + "/" + name;
    RdmaDevice device;
    device.name = name;
    device.driver = LinkName(folder + "/device/driver");
    device.nics = NicsOf(folder);
    device.roce = HasRocePort(folder);
    // Soft-RoCE alone has the attribute "parent", which names its network device; its driver link is that device's.
    if (const std::optional<std::string> parent = ReadTrimmed(folder + "/parent")) {
      device.software = true;
      if (device.nics.empty()) device.nics.push_back(*parent);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<std::string> CandidateNics(const Roots& roots) {
  const std::string root = roots.sys + "/class/net";
  std::set<std::string> with_rdma;
  for (const RdmaDevice& device : RdmaDevices(roots)) with_rdma.insert(device.nics.begin(), device.nics.end());
  std::vector<std::string> rdma, bus, rest;
  for (const std::string& nic : ListFolder(root)) {
    if (nic == "lo" || !fs::exists(root + "/" + nic + "/ifindex")) continue;
    if (with_rdma.count(nic) != 0) rdma.push_back(nic);
    if (fs::exists(root + "/" + nic + "/device")) bus.push_back(nic);
    rest.push_back(nic);
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

Check CheckNicUp(const Roots& roots, const std::string& nic) {
  const std::string name = "link " + nic;
  const std::string folder = roots.sys + "/class/net/" + nic;
  if (!fs::exists(folder)) {
    return {name, Result::kFail, "there is no such network device", "see ip link for names; correct [[nic]] name"};
  }
  const std::string state = ReadTrimmed(folder + "/operstate").value_or("unknown");
  if (state == "up" || state == "unknown") return {name, Result::kOk, state, ""};
  return {name, Result::kFail, state, absl::StrFormat("ip link set %s up; check the cable and the switch port", nic)};
}

Check CheckMtu(const Roots& roots, const std::string& nic) {
  const std::string name = "mtu " + nic;
  const std::optional<std::string> text = ReadTrimmed(roots.sys + "/class/net/" + nic + "/mtu");
  int mtu = 0;
  if (!text || !absl::SimpleAtoi(*text, &mtu)) {
    return {name, Result::kUnknown, "not visible", "see ip link for the device's name"};
  }
  const int roce = RoceMtu(mtu);
  const std::string seen = roce == 0 ? absl::StrFormat("%d: no RoCE MTU fits", mtu)
                                     : absl::StrFormat("%d: carries a RoCE MTU of %d", mtu, roce);
  if (roce == kWantedMtu) return {name, Result::kOk, seen, ""};
  return {name, roce == 0 ? Result::kFail : Result::kWarn, seen,
          absl::StrFormat("for full speed set %d or more on every port of the fabric: ip link set %s mtu %d",
                          kWantedMtu + kRoceHeaders, nic, 4500)};
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
    return {name, Result::kWarn,
            absl::StrFormat("%s carries RoCE past the kernel: its packets are not seen here",
                            absl::StrJoin(offloading, ", ")),
            "the kernel programs cannot measure or steer this NIC's queue pairs; nothing is attached to it by default"};
  }
  if (!software.empty()) {
    return {name, Result::kOk, absl::StrJoin(software, ", ") + ": soft-RoCE, its packets pass the kernel", ""};
  }
  return {name, Result::kOk, "no RDMA device: RoCE packets, if any, pass the kernel", ""};
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
  if (strictest < 0) return {name, Result::kUnknown, "not visible", "see sysctl net.ipv4.conf"};
  if (strictest == 0) return {name, Result::kOk, "off", ""};
  if (strictest == 2) return {name, Result::kOk, "loose", ""};
  if (nics < 2) return {name, Result::kOk, "strict; harmless with one NIC", ""};
  return {name, Result::kWarn, "strict: packets that arrive on another NIC than the route's are dropped",
          absl::StrFormat("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=2", nic)};
}

}  // namespace cw::host
