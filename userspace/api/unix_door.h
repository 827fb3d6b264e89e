// SPDX-License-Identifier: Apache-2.0
//
// A unix socket that this process accepts on by itself, so that the kernel's word on who connects is known before
// anything is read: gRPC's own listener does not tell. The socket appears under its name only once its mode is right,
// takes the place of one that a dead agent left, and goes with its owner. Thread rule: one owner; `admit` is called on
// the door's thread, and owns the descriptor.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace cw::api {

class UnixDoor {
 public:
  using Admit = std::function<void(int fd)>;

  // AlreadyExists when a living agent answers there. The socket's folder is made (mode 0750) when it is missing.
  static absl::StatusOr<std::unique_ptr<UnixDoor>> Open(const std::string& path, mode_t mode, Admit admit);
  ~UnixDoor();  // no `admit` is running any more when it returns
  UnixDoor(const UnixDoor&) = delete;
  UnixDoor& operator=(const UnixDoor&) = delete;

 private:
  UnixDoor(std::string path, int listener, int wake, ino_t inode, Admit admit);
  void Run();

  const std::string path_;
  const int listener_, wake_;
  const ino_t inode_;  // of our socket: another agent's is never removed
  const Admit admit_;
  std::thread thread_;
};

}  // namespace cw::api
