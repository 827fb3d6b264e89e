// SPDX-License-Identifier: Apache-2.0
// RDMA netlink's own news (`rdma monitor`): devices and their network devices that come and go. Linux has it since 6.12
// (RDMA_NL_GROUP_NOTIFY); older kernels let one join and say nothing.
// Thread rule: one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

struct mnl_socket;

namespace cw::rdma {

class NldevMonitor {
 public:
  // Unavailable: this kernel has no RDMA subsystem.
  static absl::StatusOr<std::unique_ptr<NldevMonitor>> Open();
  ~NldevMonitor();
  NldevMonitor(const NldevMonitor&) = delete;
  NldevMonitor& operator=(const NldevMonitor&) = delete;

  int fd() const;
  // Takes what is waiting, without waiting for more; true: there was something. What it was tells a new look.
  bool Drain();

 private:
  explicit NldevMonitor(mnl_socket* socket) : socket_(socket) {}
  mnl_socket* socket_;
};

}  // namespace cw::rdma
