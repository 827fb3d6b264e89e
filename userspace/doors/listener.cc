// SPDX-License-Identifier: Apache-2.0
#include "userspace/doors/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::doors {
namespace {

using maps::UniqueFd;

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr int kBacklog = 4096;  // a fleet comes back at once; the kernel takes what it allows

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), kMaxSocketPath));
  return address;
}

bool SomebodyListens(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = UnixAddress(path);
  return fd.ok() && connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

absl::Status CannotListen(const std::string& where, int error) {
  return absl::UnavailableError(absl::StrFormat("cannot listen on %s: %s", where, strerror(error)));
}

// An open socket, or none with errno.
UniqueFd ListenTcp(const sockaddr* address, socklen_t size, bool v6_only) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return fd;
  const int on = 1, only = v6_only ? 1 : 0;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  if (bind(fd.get(), address, size) == 0 && listen(fd.get(), kBacklog) == 0) return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

}  // namespace

absl::StatusOr<Listener> Listener::Tcp(const config::Listen& where, bool both_families) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(where.port)};
  sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = htons(where.port)};  // all addresses
  const bool is_v4 = inet_pton(AF_INET, where.address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4) inet_pton(AF_INET6, where.address.c_str(), &v6.sin6_addr);
  const bool both =
      both_families && (is_v4 ? v4.sin_addr.s_addr == INADDR_ANY : IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr));
  UniqueFd fd;
  if (both || !is_v4) fd = ListenTcp(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), !both);
  // A host without IPv6.
  const bool no_v6 = both && !fd.ok() && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL);
  if (no_v6) v4.sin_addr.s_addr = INADDR_ANY;
  if ((is_v4 && !both) || no_v6) fd = ListenTcp(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), false);
  if (!fd.ok()) return CannotListen(absl::StrCat(where.address, ":", where.port), errno);
  return Listener(fd.release(), "", 0);
}

absl::StatusOr<Listener> Listener::Unix(const std::string& path, mode_t mode) {
  const std::string bind_path = absl::StrCat(path, ".", getpid());
  if (bind_path.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(
        absl::StrFormat("socket path %s is longer than %d bytes; choose a shorter run_dir", path, kMaxSocketPath - 8));
  }
  if (SomebodyListens(path)) return absl::AlreadyExistsError(absl::StrCat(path, " is served by another process"));
  unlink(bind_path.c_str());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = UnixAddress(bind_path);
  struct stat info {};
  if (fd.ok() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      chmod(bind_path.c_str(), mode) == 0 && stat(bind_path.c_str(), &info) == 0 && listen(fd.get(), kBacklog) == 0 &&
      rename(bind_path.c_str(), path.c_str()) == 0)
    return Listener(fd.release(), path, info.st_ino);
  const int error = errno;
  unlink(bind_path.c_str());
  return CannotListen(path, error);
}

Listener::~Listener() {
  struct stat info {};
  if (!path_.empty() && stat(path_.c_str(), &info) == 0 && info.st_ino == inode_) unlink(path_.c_str());
}

}  // namespace cw::doors
