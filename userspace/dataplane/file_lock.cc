// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_format.h"
#include "maps/folder.h"

namespace cw::dataplane {
namespace {

std::string ReadHolder(int fd) {
  char buffer[256];
  const ssize_t n = pread(fd, buffer, sizeof(buffer), 0);
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "another process";
}

// A lock on a file that its holder has removed meanwhile is a lock on nothing.
bool StillThere(int fd, int folder, const std::string& name) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && fstatat(folder, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path, const std::string& holder) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string name = std::filesystem::path(path).filename();
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    maps::UniqueFd folder = maps::OpenFolder(parent);
    maps::UniqueFd fd;
    if (folder.ok()) fd = maps::OpenFileIn(folder.get(), name.c_str(), O_RDWR | O_CREAT, 0644);
    if (!fd.ok() && errno == ENOENT && !error) continue;  // a last holder removed the folder just now
    if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("open the lock file %s", path));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrFormat("lock %s", path));
      return absl::AlreadyExistsError(absl::StrFormat("%s is held by %s", path, ReadHolder(fd.get())));
    }
    if (!StillThere(fd.get(), folder.get(), name)) continue;
    if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), holder.data(), holder.size(), 0) < 0) {
      return absl::ErrnoToStatus(errno, absl::StrFormat("write the lock file %s", path));
    }
    FileLock lock;
    lock.folder_ = std::move(folder);
    lock.fd_ = std::move(fd);
    lock.path_ = path;
    return lock;
  }
  return absl::UnavailableError(absl::StrFormat("%s keeps being removed by others; try again", path));
}

void FileLock::Release() {
  if (!fd_.ok()) return;
  const std::filesystem::path path(path_);
  unlinkat(folder_.get(), path.filename().c_str(), 0);  // while we hold it, so that nobody else's goes
  rmdir(path.parent_path().c_str());                    // if nothing else is in it
  folder_.reset();
  fd_.reset();
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this != &other) {
    Release();
    folder_ = std::move(other.folder_);
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
  }
  return *this;
}

FileLock::~FileLock() { Release(); }

}  // namespace cw::dataplane
