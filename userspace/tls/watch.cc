// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/watch.h"

#include <sys/stat.h>

#include <utility>

namespace cw::tls {

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_ino), static_cast<int64_t>(info.st_size),
          static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Stamps are taken before the files are read: what changes meanwhile is a change next time. Files that were no good are
// read every time, because two writes within one tick of the file system's clock may leave one stamp.
Watch::News Watch::Look() {
  const Stamps stamps = {StampOf(files_.cert), StampOf(files_.key), StampOf(files_.ca)};
  if (taken_ == stamps) return {};
  absl::StatusOr<Material> material = Load(files_);
  if (material.ok()) {
    taken_ = stamps;
    told_.clear();
    return {.fresh = *std::move(material)};
  }
  const std::string problem(material.status().message());
  if (problem == told_) return {};
  told_ = problem;
  return {.fresh = std::nullopt, .problem = material.status()};
}

}  // namespace cw::tls
