// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/offload.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace cw::dataplane {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool IsSoftwareOrIwarp(const fs::path& device) {
  std::error_code error;
  // rxe has the attribute "parent" (its netdev) and no hardware driver of its own.
  if (fs::exists(device / "parent", error)) return true;
  if (!fs::exists(device / "device", error)) return true;
  return FirstLine(device / "node_type").substr(0, 1) == "4";
}

bool ServesInterface(const fs::path& device, const std::string& ifname) {
  std::error_code error;
  if (fs::exists(device / "device" / "net" / ifname, error)) return true;
  for (const auto& port : fs::directory_iterator(device / "ports", error)) {
    std::error_code none;
    // One file per GID; those of empty GIDs cannot be read. Bonds and VLANs on the NIC are found here only.
    for (const auto& gid : fs::directory_iterator(port.path() / "gid_attrs" / "ndevs", none)) {
      if (FirstLine(gid.path()) == ifname) return true;
    }
  }
  return false;
}

}  // namespace

std::string RoceOffloadDevice(const std::string& sysfs_root, const std::string& ifname) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(sysfs_root) / "class" / "infiniband", error)) {
    if (!IsSoftwareOrIwarp(entry.path()) && ServesInterface(entry.path(), ifname)) return entry.path().filename();
  }
  return "";
}

}  // namespace cw::dataplane
