// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/verbs_handles.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace cw::probe_verbs {
namespace {

constexpr size_t kMaxGids = 1024;

// Soft-RoCE's devices alone tell the interface they were made on.
bool IsSoftRoce(const std::string& device) {
  std::error_code error;
  return std::filesystem::exists("/sys/class/infiniband/" + device + "/parent", error);
}

uint32_t MtuBytes(ibv_mtu mtu) { return 128u << static_cast<uint32_t>(mtu); }

absl::StatusOr<DevicePort> Complete(ContextHandle context, const ibv_gid_entry& gid) {
  DevicePort found;
  found.device = ibv_get_device_name(context->device);
  found.port = static_cast<uint8_t>(gid.port_num);
  found.gid_index = static_cast<uint8_t>(gid.gid_index);
  found.soft_roce = IsSoftRoce(found.device);
  ibv_port_attr port = {};
  if (const int error = ibv_query_port(context.get(), found.port, &port); error != 0) {
    return absl::ErrnoToStatus(error, "ibv_query_port of " + found.device);
  }
  found.mtu = MtuBytes(port.active_mtu);
  found.context = std::move(context);
  return found;
}

}  // namespace

absl::StatusOr<DevicePort> OpenDeviceOf(uint32_t ifindex, const std::string& netdev, const Addr& address) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr) {
    return absl::ErrnoToStatus(errno, "no RDMA devices can be listed (is the module ib_uverbs loaded?)");
  }
  const auto free_list = absl::MakeCleanup([devices] { ibv_free_device_list(devices); });
  std::string seen;
  for (int i = 0; i < count; ++i) {
    seen += std::string(seen.empty() ? "" : ", ") + ibv_get_device_name(devices[i]);
    ContextHandle context(ibv_open_device(devices[i]));
    if (context == nullptr) {
      seen += absl::StrFormat(" (cannot be opened: %s)", strerror(errno));
      continue;
    }
    std::vector<ibv_gid_entry> gids(kMaxGids);
    const ssize_t n = ibv_query_gid_table(context.get(), gids.data(), gids.size(), 0);
    for (ssize_t g = 0; g < n; ++g) {
      const ibv_gid_entry& gid = gids[static_cast<size_t>(g)];
      if (gid.gid_type != IBV_GID_TYPE_ROCE_V2 || gid.ndev_ifindex != ifindex || gid.gid_index > UINT8_MAX) continue;
      if (std::memcmp(gid.gid.raw, address.bytes.data(), address.bytes.size()) != 0) continue;
      return Complete(std::move(context), gid);
    }
  }
  return absl::NotFoundError(absl::StrFormat("no RDMA device has %s on %s as a RoCEv2 GID (devices: %s)",
                                             address.ToString(), netdev, seen.empty() ? "none" : seen));
}

}  // namespace cw::probe_verbs
