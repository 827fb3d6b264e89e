// SPDX-License-Identifier: Apache-2.0
// What a virtual machine boots: a distribution kernel and a root file system in memory, with files of ours added.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::vm {

// CW_VM_KERNEL in the environment, or 6.1: what machines boot for which a test names no other kernel.
std::string DefaultKernel();

struct ImageOptions {
  // A series of Debian 12 and its archives (6.1, 6.12), or a kernel package's full name.
  std::string kernel = DefaultKernel();
  std::vector<std::pair<std::string, std::string>>
      files;                          // {host file, path in the machine}; programs bring their libraries
  std::vector<std::string> archives;  // further ones (cpio, newc), unpacked last
};

// The kernel and base archive are kept in the source tree's build/vm for all runs; the joined archive belongs to this
// object.
class Image {
 public:
  // Unavailable: QEMU or the kernel package cannot be had here (a test may skip); other errors are faults.
  static absl::StatusOr<Image> Build(const ImageOptions& options);
  ~Image();
  Image(Image&& other) noexcept;
  Image& operator=(Image&&) = delete;

  const std::string& kernel() const { return kernel_; }
  const std::string& initrd() const { return initrd_; }
  const std::string& release() const { return release_; }  // as uname -r prints it

 private:
  Image() = default;
  std::string kernel_, initrd_, release_;
  int initrd_fd_ = -1;
};

}  // namespace cw::vm
