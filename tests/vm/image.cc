// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/image.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/vm/host_command.h"

namespace cw::vm {
namespace {

namespace fs = std::filesystem;

std::string ReadLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

bool InPath(const std::string& program) {
  std::istringstream path(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// A descriptor of ours by a path that QEMU can open.
std::string PathOf(int fd) { return absl::StrCat("/proc/", getpid(), "/fd/", fd); }

// The parts one after the other in a file that has no name, so that a killed run leaves nothing behind.
absl::StatusOr<int> Join(const std::vector<std::string>& parts) {
  int fd = memfd_create("initrd", MFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  std::ofstream to(PathOf(fd), std::ios::binary);
  for (const std::string& part : parts) to << std::ifstream(part, std::ios::binary).rdbuf();
  if (to.flush()) return fd;
  close(fd);
  return absl::InternalError("cannot join the parts of the initrd");
}

}  // namespace

std::string DefaultKernel() {
  const char* named = getenv("CW_VM_KERNEL");
  return named == nullptr || *named == '\0' ? "6.1" : named;
}

absl::StatusOr<Image> Image::Build(const ImageOptions& options) {
  if (!InPath("qemu-system-x86_64")) return absl::UnavailableError("qemu-system-x86_64 is not installed");
  const char* cache = getenv("CW_VM_CACHE");
  std::string folder = absl::StrCat(cache ? cache : CW_VM_CACHE_DEFAULT, "/", options.kernel);
  std::error_code error;
  fs::create_directories(folder, error);
  int status = RunHostCommand({CW_VM_SOURCE_DIR "/mkinitramfs.sh", folder, options.kernel});
  if (status == 3) return absl::UnavailableError("the kernel package cannot be had (see the message above)");
  if (status != 0) return absl::InternalError(absl::StrFormat("mkinitramfs.sh ended with %d", status));

  std::string overlay = absl::StrCat(folder, "/overlay-", getpid());
  std::vector<std::string> pack = {CW_VM_SOURCE_DIR "/mkoverlay.sh", overlay, CW_VM_GUESTD "=/sbin/cw_vm_guestd"};
  for (const auto& [from, to] : options.files) pack.push_back(absl::StrCat(from, "=", to));
  status = RunHostCommand(pack);
  absl::StatusOr<int> joined = absl::InternalError(absl::StrFormat("mkoverlay.sh ended with %d", status));
  std::vector<std::string> parts = {folder + "/initrd.cpio", overlay};
  parts.insert(parts.end(), options.archives.begin(), options.archives.end());
  if (status == 0) joined = Join(parts);
  fs::remove(overlay, error);
  if (!joined.ok()) return joined.status();
  Image image;
  image.initrd_fd_ = *joined;
  image.initrd_ = PathOf(*joined);
  image.kernel_ = folder + "/vmlinuz";
  image.release_ = ReadLine(folder + "/kver");
  return image;
}

Image::Image(Image&& other) noexcept
    : kernel_(std::move(other.kernel_)),
      initrd_(std::move(other.initrd_)),
      release_(std::move(other.release_)),
      initrd_fd_(std::exchange(other.initrd_fd_, -1)) {}

Image::~Image() {
  if (initrd_fd_ >= 0) close(initrd_fd_);
}

}  // namespace cw::vm
