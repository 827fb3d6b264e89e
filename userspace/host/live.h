// SPDX-License-Identifier: Apache-2.0
//
// What the doctor asks the running kernel: behind an interface, so that its judgement can be tested without one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "maps/names.h"

namespace cw::host {

struct AttachedProgram {
  std::string
      hook;  // "xdp native", "xdp generic", "xdp offload", "tc ingress", "tc egress", "tcx ingress", "tcx egress"
  std::string name;  // of the program, as the kernel keeps it (15 characters); "" = not told
  uint32_t id = 0;   // of the program
  bool ours = false;
};

// A network device of the present network namespace. /sys does not tell: it shows the namespace that mounted it.
struct Interface {
  std::string name;
  std::string state;                         // "up", "no carrier", "down"
  int mtu = 0;                               // bytes
  bool on_bus = false;                       // a device on a bus (PCI, virtio, …), not a virtual one
  std::string driver;                        // as ethtool names it; "" = not told
  bool strips_vlan = false, merges = false;  // receive VLAN offload, large receive offload
  bool segments_udp = false;                 // what is sent in one piece as UDP is cut by the NIC
  std::vector<std::string> gathers_udp;      // features that make one packet of several UDP ones that arrived
  std::vector<std::string> vlans;            // devices with a VLAN of it
  bool needs_clsact = false;                 // a tc program needs this queueing discipline, and it is not there yet
};

// A port of an RDMA device over a network device of the present network namespace.
struct RdmaPort {
  std::string device;  // mlx5_0
  std::string nic;
};

struct ClockDiscipline {
  bool synchronised = false;  // some daemon disciplines the system clock
  int64_t max_error_us = 0;   // as that daemon told the kernel
};

class LiveProbe {
 public:
  virtual ~LiveProbe() = default;
  virtual absl::StatusOr<std::vector<Interface>> Interfaces() = 0;
  // Empty where the kernel has no RDMA.
  virtual absl::StatusOr<std::vector<RdmaPort>> RdmaPorts() = 0;
  // Programs at XDP and at tc of this device. Needs CAP_NET_ADMIN.
  virtual absl::StatusOr<std::vector<AttachedProgram>> Programs(const std::string& nic) = 0;
  // Whether a thread of this process may run under SCHED_FIFO. Ok, or why not.
  virtual absl::Status Realtime() = 0;
  virtual absl::StatusOr<ClockDiscipline> Clock() = 0;
};

// The kernel of this process, in the network namespace of the calling thread.
class KernelProbe final : public LiveProbe {
 public:
  // pin_root: where agents pin what is theirs (CW_PIN_ROOT). Who may not open programs by their numbers, as the service
  // may not, knows ours by these pins, and has no name of others.
  explicit KernelProbe(std::string pin_root = CW_PIN_ROOT) : pin_root_(std::move(pin_root)) {}
  absl::StatusOr<std::vector<Interface>> Interfaces() override;
  absl::StatusOr<std::vector<RdmaPort>> RdmaPorts() override;
  absl::StatusOr<std::vector<AttachedProgram>> Programs(const std::string& nic) override;
  absl::Status Realtime() override;
  absl::StatusOr<ClockDiscipline> Clock() override;

 private:
  std::string pin_root_;
};

}  // namespace cw::host
