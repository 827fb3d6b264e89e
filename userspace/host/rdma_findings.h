// SPDX-License-Identifier: Apache-2.0
//
// What is wrong or worth knowing about RDMA devices for RoCEv2, and what changed between two looks at them.
// Pure; any thread. Sources of the facts: docs/hardware.md.
#pragma once

#include <string>
#include <vector>

#include "userspace/host/rdma_tree.h"

namespace cw::host {

struct RdmaFinding {
  enum class Level { kNote, kWarn, kFail };
  std::string device;
  uint32_t port = 0;  // 0: the device
  std::string kind;   // port_down, only_roce_v1, no_ipv4_gid, gid_index, mtu, rate, lag, vf, iwarp
  Level level = Level::kNote;
  std::string text;  // one sentence
  std::string todo;  // "" of notes
};

// By device and port, those of several devices last.
std::vector<RdmaFinding> JudgeRdma(const RdmaTree& tree);

// The RoCE MTU that a device of this MTU gives: soft-RoCE takes 80 bytes off, all others 96 (RoceMtu in nic_checks.h).
int ExpectedRoceMtu(int netdev_mtu, bool software);

struct RdmaChange {
  enum class Severity { kInfo, kNotice, kAlert };
  std::string device;
  uint32_t port = 0;  // 0: the device
  std::string netdev;
  Severity severity = Severity::kInfo;
  std::string what;  // port, gid, rate, netdev, device
  std::string text;  // one sentence
};

// Ports that went up or down, GIDs that came, went or changed, rates, devices that came and went.
std::vector<RdmaChange> CompareRdma(const RdmaTree& before, const RdmaTree& now);

}  // namespace cw::host
