// SPDX-License-Identifier: Apache-2.0
//
// An exclusive flock(2) on a file, held until destruction (or the process's death), with a line in the file that says
// who holds it. The file is removed on release, and its folder when nothing else is in it. A symlink that another user
// made is not followed (maps/folder.h): root takes the lock of a service that is not root.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {

class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // Creates missing folders. AlreadyExists with the holder's line when somebody holds it.
  static absl::StatusOr<FileLock> Acquire(const std::string& path, const std::string& holder);
  bool held() const { return fd_.ok(); }

 private:
  void Release();
  maps::UniqueFd folder_;
  maps::UniqueFd fd_;
  std::string path_;
};

}  // namespace cw::dataplane
