// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_format.h"

namespace cw::dataplane {
namespace {

std::string ReadHolder(int fd) {
  char buffer[256];
  const ssize_t n = pread(fd, buffer, sizeof(buffer), 0);
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "another process";
}

// A lock on a file that its holder has removed meanwhile is a lock on nothing.
bool StillThere(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path, const std::string& holder) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    maps::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd.ok() && errno == ENOENT && !error) continue;  // a last holder removed the folder just now
    if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("open the lock file %s", path));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrFormat("lock %s", path));
      return absl::AlreadyExistsError(absl::StrFormat("%s is held by %s", path, ReadHolder(fd.get())));
    }
    if (!StillThere(fd.get(), path)) continue;
    if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), holder.data(), holder.size(), 0) < 0) {
      return absl::ErrnoToStatus(errno, absl::StrFormat("write the lock file %s", path));
    }
    FileLock lock;
    lock.fd_ = std::move(fd);
    lock.path_ = path;
    return lock;
  }
  return absl::UnavailableError(absl::StrFormat("%s keeps being removed by others; try again", path));
}

void FileLock::Release() {
  if (!fd_.ok()) return;
  unlink(path_.c_str());                                      // while we hold it, so that nobody else's goes
  rmdir(std::filesystem::path(path_).parent_path().c_str());  // if nothing else is in it
  fd_.reset();
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this != &other) {
    Release();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
  }
  return *this;
}

FileLock::~FileLock() { Release(); }

}  // namespace cw::dataplane
