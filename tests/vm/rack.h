// SPDX-License-Identifier: Apache-2.0
// Two machines with real soft-RoCE on the lab's fabric: machine 0 on leaf 0, machine 1 on leaf 1, any spines between.
//
//      vm0 eth0 ── leaf0 ══ spine0..S-1 ══ leaf1 ── eth0 vm1        eth0: fabric, under rxe0
//          eth1 ─────────── management bridge ───── eth1            eth1: management, which no fault touches
//
// Usable from tests and from programs. Thread rule: as lab::Fabric for the fabric, any thread for the machines.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/vm/image.h"
#include "tests/vm/rig.h"
#include "userspace/lab/fabric.h"

namespace cw::vm {

struct RackOptions {
  std::string lab = "vm";
  int spines = 4;
  int memory_mib = 768;  // of a machine
  // Well below what the emulated machines can send in all (some 35 MB/s), so that links and not processors are scarce.
  double link_mbps = 100;
  // Soft-RoCE keeps up to 128 packets of each queue pair in flight and has no rate control: with room for all of them
  // on one link (four queue pairs: 2.2 MB) the fabric loses nothing by itself, so every loss seen is a fault's.
  int64_t queue_bytes = 4 << 20;
  ImageOptions image;
  bool second_nic = false;     // eth2: a second NIC on the fabric, on the same leaf
  bool ipv6 = false;           // eth0 has fd00:: and its IPv4 address as well, and the fabric is known by those
  bool shared_memory = false;  // both machines see the same memory of the host (VmConfig::shared_memory)
  std::string log_dir;         // created; gets the consoles
  absl::Duration boot_timeout = absl::Seconds(120);
};

class Rack {
 public:
  // Unavailable: QEMU or the kernel package cannot be had.
  static absl::StatusOr<std::unique_ptr<Rack>> Up(const RackOptions& options);
  ~Rack();
  Rack(const Rack&) = delete;
  Rack& operator=(const Rack&) = delete;

  // Both at once when both are named: as a loss of power ends a machine, and as it comes back. What was in its memory
  // is gone, addresses and soft-RoCE are as at first.
  absl::Status Restart(const std::vector<int>& machines);

  lab::Fabric& fabric() { return *fabric_; }
  Vm& machine(int i) { return *machines_[static_cast<size_t>(i)]; }
  int second_port(int i) const { return second_ports_[static_cast<size_t>(i)]; }  // of eth2
  int port(int i) const { return ports_[static_cast<size_t>(i)]; }  // of the machine, for lab::LinkDirection

  // The spine that the latest data packet from machine 0 to each destination QPN took, as leaf 0's port counted it.
  absl::StatusOr<std::map<uint32_t, int>> SpinesByQpn() const;

  static std::string FabricAddress(int i);   // 10.0.<i>.100
  static std::string FabricAddress6(int i);  // the same behind fd00::, as inet_ntop() writes it
  static std::string SecondAddress(int i);   // 10.0.<i>.101
  static std::string MgmtAddress(int i);     // 192.168.77.<100+i>

 private:
  Rack(const RackOptions& options, Image image) : options_(options), image_(std::move(image)) {}
  absl::Status KeepFlowsInOrder();
  absl::Status Plug(int i);
  absl::Status Boot(int i);
  absl::Status AwaitMachine(int i);
  absl::Status RouteSecondNic(int i);
  absl::Status GiveAddress6(int i);

  const RackOptions options_;
  Image image_;
  int shared_fd_ = -1;
  std::unique_ptr<lab::Fabric> fabric_;
  std::array<VmConfig, 2> configs_;
  std::array<int, 2> ports_ = {-1, -1};
  std::array<int, 2> second_ports_ = {-1, -1};
  std::array<std::unique_ptr<Vm>, 2> machines_;  // after fabric_: they end first
};

}  // namespace cw::vm
