// SPDX-License-Identifier: Apache-2.0
//
// Folders that belong to the service's user, in the hands of root (a package's removal): who may write into one can
// put a symlink where root expects a folder or a file of ours. Errors are errno's. Thread rule: none needed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "maps/unique_fd.h"

namespace cw::maps {

// Only root and we can put anything into it.
inline bool IsOnlyOurs(int folder) {
  struct stat info;
  return fstat(folder, &info) == 0 && (info.st_uid == 0 || info.st_uid == geteuid()) && (info.st_mode & 022) == 0;
}

// For the calls that end in "at"; not ok with errno set. Symlinks are followed where only root or we can have made
// them; elsewhere one is ENOTDIR.
inline UniqueFd OpenFolder(const std::string& path) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  UniqueFd folder(open(path.starts_with('/') ? "/" : ".", kFlags));
  for (size_t at = 0; folder.ok() && at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    at = end + 1;
    if (!name.empty())
      folder.reset(openat(folder.get(), name.c_str(), kFlags | (IsOnlyOurs(folder.get()) ? 0 : O_NOFOLLOW)));
  }
  return folder;
}

// A file of this folder itself: ELOOP for a symlink, EMLINK for anything else that is not a file of one name.
inline UniqueFd OpenFileIn(int folder, const char* name, int flags, mode_t mode = 0) {
  UniqueFd file(openat(folder, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  struct stat info;
  if (file.ok() && (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1)) {
    file.reset();
    errno = EMLINK;
  }
  return file;
}

}  // namespace cw::maps
