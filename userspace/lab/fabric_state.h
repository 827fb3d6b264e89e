// SPDX-License-Identifier: Apache-2.0
//
// What a lab leaves on disk, so that other processes can attach to it and clean up after it: /run/cwlab/<lab>/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/switch.h"

namespace cw::lab {

struct TapPort {
  int port = 0;
  int leaf = 0;
  std::string device;  // in the leaf
  std::string address;
  int host = -1;  // a further NIC of this host; −1: a virtual machine's
};

struct FabricState {
  FabricSpec spec;
  SwitchMapIds maps;
  bool complete = false;  // false while Up is at work
  bool ecmp_seeded = false;
  std::optional<ProcessId> owner;  // the process whose Fabric object takes the lab down; none once it was released
  std::vector<TapPort> taps;
};

absl::Status SaveState(const FabricState& state);               // replaces the file at once
absl::StatusOr<FabricState> LoadState(const std::string& lab);  // NotFound; DataLoss when it cannot be read
absl::Status RemoveStateFiles(const std::string& lab);          // the whole run folder
std::vector<std::string> LabsOnDisk();

absl::Status SaveProcess(const std::string& lab, const ProcessId& process, const std::string& role);
void RemoveProcess(const std::string& lab, pid_t pid);
std::vector<ProcessId> LoadProcesses(const std::string& lab);

// Up, Down and changes of the state of one lab exclude each other, across processes. Released by the destructor.
class LabLock {
 public:
  static absl::StatusOr<std::unique_ptr<LabLock>> Take(const std::string& lab);
  ~LabLock();
  LabLock(const LabLock&) = delete;
  LabLock& operator=(const LabLock&) = delete;

 private:
  LabLock(int fd, std::string lab) : fd_(fd), lab_(std::move(lab)) {}
  int fd_;
  std::string lab_;
};

}  // namespace cw::lab
