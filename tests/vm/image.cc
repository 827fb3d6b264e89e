// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/image.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

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

absl::Status Join(const std::string& out, const std::vector<std::string>& parts) {
  std::ofstream to(out, std::ios::binary);
  for (const std::string& part : parts) to << std::ifstream(part, std::ios::binary).rdbuf();
  if (!to.flush()) return absl::InternalError(absl::StrFormat("cannot write %s", out));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Image> Image::Build(const ImageOptions& options) {
  if (!InPath("qemu-system-x86_64")) return absl::UnavailableError("qemu-system-x86_64 is not installed");
  const char* cache = getenv("CW_VM_CACHE");
  std::string folder =
      absl::StrCat(cache ? cache : CW_VM_CACHE_DEFAULT, "/", options.package.empty() ? "debian-12" : options.package);
  std::error_code error;
  fs::create_directories(folder, error);
  std::vector<std::string> make = {CW_VM_SOURCE_DIR "/mkinitramfs.sh", folder};
  if (!options.package.empty()) make.push_back(options.package);
  int status = RunHostCommand(make);
  if (status == 3) return absl::UnavailableError("the kernel package cannot be had (see the message above)");
  if (status != 0) return absl::InternalError(absl::StrFormat("mkinitramfs.sh ended with %d", status));

  Image image;
  std::string name = folder + "/run-XXXXXX";
  int fd = mkstemp(name.data());
  if (fd < 0) return absl::ErrnoToStatus(errno, name);
  close(fd);
  image.initrd_ = name;
  image.kernel_ = folder + "/vmlinuz";
  image.release_ = ReadLine(folder + "/kver");

  std::string overlay = name + ".overlay";
  std::vector<std::string> pack = {CW_VM_SOURCE_DIR "/mkoverlay.sh", overlay, CW_VM_GUESTD "=/sbin/cw_vm_guestd"};
  for (const auto& [from, to] : options.files) pack.push_back(absl::StrCat(from, "=", to));
  status = RunHostCommand(pack);
  absl::Status joined = status == 0 ? Join(name, {folder + "/initrd.cpio", overlay})
                                    : absl::InternalError(absl::StrFormat("mkoverlay.sh ended with %d", status));
  fs::remove(overlay, error);
  if (!joined.ok()) return joined;
  return image;
}

Image::Image(Image&& other) noexcept
    : kernel_(std::move(other.kernel_)), initrd_(std::move(other.initrd_)), release_(std::move(other.release_)) {
  other.initrd_.clear();
}

Image::~Image() {
  if (!initrd_.empty()) unlink(initrd_.c_str());
}

}  // namespace cw::vm
