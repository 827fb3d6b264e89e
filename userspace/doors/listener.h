// SPDX-License-Identifier: Apache-2.0
//
// A socket that listens. Thread rule: plain owner of a descriptor.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"
#include "userspace/config/listen.h"

namespace cw::doors {

class Listener {
 public:
  // both_families: an address that stands for all of this host's stands for those of the other family, too.
  // Unavailable: why not.
  static absl::StatusOr<Listener> Tcp(const config::Listen& where, bool both_families = false);
  // Bound under a name of its own, then renamed: nobody can open it before its mode is right. It takes the place of one
  // that a dead process left; AlreadyExists where a living one answers. The socket goes with this.
  static absl::StatusOr<Listener> Unix(const std::string& path, mode_t mode);

  ~Listener();
  Listener(Listener&& other) noexcept
      : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, "")), inode_(other.inode_) {}
  Listener& operator=(Listener&&) = delete;

  int fd() const { return fd_.get(); }
  bool is_unix() const { return !path_.empty(); }

 private:
  Listener(int fd, std::string path, ino_t inode) : fd_(fd), path_(std::move(path)), inode_(inode) {}

  maps::UniqueFd fd_;
  std::string path_;  // "": TCP
  ino_t inode_;       // of our socket: another process's is never removed
};

}  // namespace cw::doors
