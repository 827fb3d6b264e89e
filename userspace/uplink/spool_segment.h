// SPDX-License-Identifier: Apache-2.0
//
// One file of the spool. Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/uplink/spool_format.h"

namespace cw::uplink {

// The calls that fail on full and broken disks; tests put others in.
struct FileCalls {
  std::function<ssize_t(int fd, const void* bytes, size_t size, off_t at)> write;
  std::function<int(int fd)> sync;
  static FileCalls Real();
};

class Segment {
 public:
  // A new file. AlreadyExists, or the system's error.
  static absl::StatusOr<Segment> Create(const std::string& path, const FileCalls& calls);
  // An existing one, with all its bytes.
  static absl::StatusOr<Segment> Open(const std::string& path, std::string* bytes);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Where the frame begins. On an error nothing of it stays; ResourceExhausted: the disk is full.
  absl::StatusOr<uint64_t> Append(absl::string_view frame, bool sync, const FileCalls& calls);
  absl::StatusOr<std::string> Read(uint64_t offset, size_t size) const;
  absl::Status Truncate(uint64_t size);
  absl::Status Remove();  // the file; reading goes on until the segment is gone

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  Segment(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace cw::uplink
