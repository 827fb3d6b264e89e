// SPDX-License-Identifier: Apache-2.0
//
// The folder of one instance's pins on the BPF file system: CW_PIN_ROOT/INSTANCE (maps/names.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/dataplane/program_info.h"
#include "userspace/dataplane/tc_side.h"

namespace cw::dataplane {

// Mounts a BPF file system on CW_BPFFS when none is there.
absl::Status EnsureBpffs();

// [A-Za-z0-9_-]{1,32}: the BPF file system refuses dots.
absl::Status CheckInstanceName(const std::string& instance);

class PinFolder {
 public:
  PinFolder(std::string root, std::string instance);

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string XdpLink(uint32_t ifindex) const;
  std::string TcxLink(TcSide side, uint32_t ifindex) const { return File(TcxLinkName(side, ifindex)); }
  static std::string TcxLinkName(TcSide side, uint32_t ifindex);

  absl::Status Create() const;
  // Pins `fd`; an older pin of that name is replaced without a moment in which there is none.
  absl::Status Pin(int fd, const std::string& name) const;
  // Ok when there is no such pin.
  absl::Status Unpin(const std::string& name) const;
  std::vector<std::string> Names() const;  // sorted
  // Names under which what was replaced of this name is pinned, whatever its id.
  std::vector<std::string> Former(const std::string& name) const;
  static std::string FormerName(const std::string& name, uint32_t id);
  std::vector<uint32_t> LinkIfindexes() const;  // of the links that are pinned; sorted, each once
  bool Has(const std::string& name) const;
  // A tc program of ours by its name that no instance of this root has pinned, nor a map of it: somebody removed the
  // pins.
  bool IsOrphan(const ProgramInfo& program) const;
  // An error where another user's symlink would lead elsewhere: root removes what is the service's.
  absl::Status CheckOwn() const;
  // Removes every pin and the folder; the folders above it too when they are empty then.
  absl::Status RemoveAll() const;

 private:
  std::string root_;
  std::string path_;
};

}  // namespace cw::dataplane
