// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"

namespace cw {

namespace {

// Open for reading, and a regular file.
absl::StatusOr<int> OpenRegular(const std::string& path, struct stat& info) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string text = absl::StrFormat("cannot read %s: %s", path, strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
  }
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  close(fd);
  return absl::InvalidArgumentError(
      absl::StrFormat("cannot read %s: it is %s", path, S_ISDIR(info.st_mode) ? "a folder" : "no regular file"));
}

}  // namespace

absl::Status CheckPlaceOfFile(const std::string& path) {
  struct stat info {};
  if (path.empty() || stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISCHR(info.st_mode))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %s: no file can be written there; move it away", path,
                                                    S_ISDIR(info.st_mode) ? "a folder" : "no regular file"));
}

absl::Status CheckRegularFile(const std::string& path) {
  struct stat info {};
  const absl::StatusOr<int> fd = OpenRegular(path, info);
  if (fd.ok()) close(*fd);
  return fd.status();
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t most_bytes) {
  struct stat info {};
  const absl::StatusOr<int> fd = OpenRegular(path, info);
  if (!fd.ok()) return fd.status();
  const absl::Cleanup close_fd = [&fd] { close(*fd); };
  std::string text;
  for (ssize_t n = 1; n != 0;) {
    const size_t size = text.size();
    if (size > most_bytes)
      return absl::InvalidArgumentError(absl::StrFormat("%s has more than %d bytes", path, most_bytes));
    const auto rest = static_cast<uint64_t>(std::max<int64_t>(info.st_size - static_cast<int64_t>(size), 0));
    text.resize(size + std::clamp<uint64_t>(rest + 1, 4096, 1 << 20));
    n = read(*fd, text.data() + size, text.size() - size);
    if (n < 0) return absl::DataLossError(absl::StrFormat("cannot read %s to its end: %s", path, strerror(errno)));
    text.resize(size + static_cast<size_t>(n));
  }
  return text;
}

}  // namespace cw
