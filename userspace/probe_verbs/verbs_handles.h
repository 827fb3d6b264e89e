// SPDX-License-Identifier: Apache-2.0
//
// Owners of libibverbs' objects, and the device behind a NIC's address. Thread rule: as libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

namespace cw::probe_verbs {

template <auto Release>
struct Releaser {
  template <typename T>
  void operator()(T* object) const {
    (void)Release(object);
  }
};

using ContextHandle = std::unique_ptr<ibv_context, Releaser<ibv_close_device>>;
using PdHandle = std::unique_ptr<ibv_pd, Releaser<ibv_dealloc_pd>>;
using ChannelHandle = std::unique_ptr<ibv_comp_channel, Releaser<ibv_destroy_comp_channel>>;
using CqHandle = std::unique_ptr<ibv_cq, Releaser<ibv_destroy_cq>>;
using MrHandle = std::unique_ptr<ibv_mr, Releaser<ibv_dereg_mr>>;
using QpHandle = std::unique_ptr<ibv_qp, Releaser<ibv_destroy_qp>>;
using AhHandle = std::unique_ptr<ibv_ah, Releaser<ibv_destroy_ah>>;

// An open device, and where the address is in its GID table.
struct DevicePort {
  ContextHandle context;
  std::string device;
  uint8_t port = 0;
  uint8_t gid_index = 0;
  uint32_t mtu = 0;  // bytes of payload, active
  bool soft_roce = false;
};

// The device of which one RoCEv2 GID is the address, on that interface. NotFound says what was looked for.
absl::StatusOr<DevicePort> OpenDeviceOf(uint32_t ifindex, const std::string& netdev, const Addr& address);

}  // namespace cw::probe_verbs
