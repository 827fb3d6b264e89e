// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/spool_segment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cw::uplink {
namespace {

// EFBIG: a limit of the process or the file system; for us the same as a full disk.
absl::Status DiskError(int error, absl::string_view what, const std::string& path) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(absl::StrCat("no room left to ", what, " ", path,
                                                     ": free some on its file system, or lower fleet.spool_bytes"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

// Zero, or the error.
int WriteAll(int fd, absl::string_view bytes, uint64_t at, const FileCalls& calls) {
  while (!bytes.empty()) {
    const ssize_t wrote = calls.write(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(wrote));
    at += static_cast<uint64_t>(wrote);
  }
  return 0;
}

absl::StatusOr<std::string> ReadAt(int fd, uint64_t offset, size_t size, const std::string& path) {
  std::string bytes(size, 0);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(fd, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path);
    if (got == 0) break;  // somebody cut it
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

FileCalls FileCalls::Real() { return {.write = pwrite, .sync = fdatasync}; }

absl::StatusOr<Segment> Segment::Create(const std::string& path, const FileCalls& calls) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return DiskError(errno, "create", path);
  Segment segment(path, fd, kSegmentHead.size());
  if (const int error = WriteAll(fd, kSegmentHead, 0, calls); error != 0) {
    unlink(path.c_str());
    return DiskError(error, "write", path);
  }
  return segment;
}

absl::StatusOr<Segment> Segment::Open(const std::string& path, std::string* bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return DiskError(errno, "open", path);
  Segment segment(path, fd, 0);
  struct stat info {};
  if (fstat(fd, &info) != 0) return DiskError(errno, "read", path);
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(path + " is no ordinary file: take it away");
  absl::StatusOr<std::string> all = ReadAt(fd, 0, static_cast<size_t>(info.st_size), path);
  if (!all.ok()) return all.status();
  segment.size_ = all->size();
  *bytes = *std::move(all);
  return segment;
}

Segment::Segment(Segment&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

Segment::~Segment() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<uint64_t> Segment::Append(absl::string_view frame, bool sync, const FileCalls& calls) {
  int error = WriteAll(fd_, frame, size_, calls);
  if (error == 0 && sync && calls.sync(fd_) != 0) error = errno;
  if (error != 0) {
    // Half a frame would be skipped by the next reader anyhow; without it the disk has that room back.
    if (ftruncate(fd_, static_cast<off_t>(size_)) != 0) return DiskError(errno, "truncate", path_);
    return DiskError(error, "write", path_);
  }
  const uint64_t at = size_;
  size_ += frame.size();
  return at;
}

absl::StatusOr<std::string> Segment::Read(uint64_t offset, size_t size) const {
  return ReadAt(fd_, offset, size, path_);
}

absl::Status Segment::Truncate(uint64_t size) {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return DiskError(errno, "truncate", path_);
  size_ = size;
  return absl::OkStatus();
}

absl::Status Segment::Remove() {
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return DiskError(errno, "remove", path_);
  return absl::OkStatus();
}

}  // namespace cw::uplink
