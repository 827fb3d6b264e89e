// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/reserve.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace cw::fleet {

Reserve::Reserve(std::string file, uint64_t bytes) : file_(std::move(file)), bytes_(bytes) { Restore(); }

void Reserve::Release() {
  if (truncate(file_.c_str(), 0) == 0) held_ = false;
}

void Reserve::Restore() {
  if (held_ || bytes_ == 0) return;
  const int fd = open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  // Half of it would only take what the database needs.
  held_ = posix_fallocate(fd, 0, static_cast<off_t>(bytes_)) == 0;
  if (!held_ && ftruncate(fd, 0) != 0) held_ = false;
  close(fd);
}

}  // namespace cw::fleet
