// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/unix_door.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"

namespace cw::api {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr int kBacklog = 128;
constexpr int kRestMs = 100;  // when no descriptor is left for another connection

sockaddr_un SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), kMaxSocketPath));
  return address;
}

bool SomebodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const sockaddr_un address = SocketAddress(path);
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

absl::Status PrepareFolder(const std::string& socket_path) {
  const std::filesystem::path folder = std::filesystem::path(socket_path).parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder)) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms(0750), error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("cannot make folder %s: %s; run as root, or set run_dir", folder.string(), error.message()));
}

// Bound under a name of its own, then renamed: nobody can open it before its mode is right. −1, with errno.
int Listen(const std::string& path, const std::string& bind_path, mode_t mode, struct stat* info) {
  unlink(bind_path.c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const sockaddr_un address = SocketAddress(bind_path);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      chmod(bind_path.c_str(), mode) == 0 && stat(bind_path.c_str(), info) == 0 && listen(fd, kBacklog) == 0 &&
      rename(bind_path.c_str(), path.c_str()) == 0)
    return fd;
  const int error = errno;
  close(fd);
  unlink(bind_path.c_str());
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixDoor>> UnixDoor::Open(const std::string& path, mode_t mode, Admit admit) {
  const std::string bind_path = absl::StrFormat("%s.%d", path, getpid());
  if (bind_path.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(
        absl::StrFormat("socket path %s is longer than %d bytes; choose a shorter run_dir", path, kMaxSocketPath - 8));
  }
  if (absl::Status status = PrepareFolder(path); !status.ok()) return status;
  if (SomebodyListens(path)) {
    return absl::AlreadyExistsError(
        absl::StrFormat("an agent already serves %s; stop it, or give this one another instance name", path));
  }
  struct stat info {};
  const int listener = Listen(path, bind_path, mode, &info);
  if (listener < 0) {
    return absl::UnavailableError(
        absl::StrFormat("cannot serve on %s: %s; check the folder's owner and mode", path, strerror(errno)));
  }
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    close(listener);
    return absl::ErrnoToStatus(errno, "eventfd");
  }
  return std::unique_ptr<UnixDoor>(new UnixDoor(path, listener, wake, info.st_ino, std::move(admit)));
}

UnixDoor::UnixDoor(std::string path, int listener, int wake, ino_t inode, Admit admit)
    : path_(std::move(path)),
      listener_(listener),
      wake_(wake),
      inode_(inode),
      admit_(std::move(admit)),
      thread_([this] { Run(); }) {}

UnixDoor::~UnixDoor() {
  struct stat info {};
  if (stat(path_.c_str(), &info) == 0 && info.st_ino == inode_) unlink(path_.c_str());
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
  thread_.join();
  close(listener_);
  close(wake_);
}

void UnixDoor::Run() {
  pollfd watched[] = {{.fd = wake_, .events = POLLIN, .revents = 0}, {.fd = listener_, .events = POLLIN, .revents = 0}};
  while (true) {
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      admit_(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      (void)poll(watched, 1, kRestMs);
      if (watched[0].revents != 0) return;
    }
  }
}

}  // namespace cw::api
