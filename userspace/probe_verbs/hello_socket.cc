// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/hello_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"

namespace cw::probe_verbs {
namespace {

union SockAddr {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

SockAddr ToSockAddr(const Addr& address, uint16_t port, socklen_t* len) {
  SockAddr out;
  std::memset(&out, 0, sizeof(out));
  if (address.is_v4()) {
    out.v4.sin_family = AF_INET;
    out.v4.sin_port = htons(port);
    out.v4.sin_addr.s_addr = htonl(address.v4());
    *len = sizeof(out.v4);
  } else {
    out.v6.sin6_family = AF_INET6;
    out.v6.sin6_port = htons(port);
    std::copy(address.bytes.begin(), address.bytes.end(), out.v6.sin6_addr.s6_addr);
    *len = sizeof(out.v6);
  }
  return out;
}

}  // namespace

absl::StatusOr<HelloSocket> HelloSocket::Open(const Addr& address, uint32_t ifindex, uint16_t port) {
  const std::string where = absl::StrFormat("UDP port %d of %s (probe.verbs_port)", port, address.ToString());
  maps::UniqueFd fd(socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, where);
  const int interface = static_cast<int>(ifindex);
  if (setsockopt(fd.get(), SOL_SOCKET, SO_BINDTOIFINDEX, &interface, sizeof(interface)) != 0) {
    return absl::ErrnoToStatus(errno, where);
  }
  socklen_t len = 0;
  const SockAddr own = ToSockAddr(address, port, &len);
  if (bind(fd.get(), &own.any, len) != 0) return absl::ErrnoToStatus(errno, where);
  return HelloSocket(std::move(fd), port);
}

void HelloSocket::Send(const Addr& to, const HelloBytes& bytes) const {
  socklen_t len = 0;
  const SockAddr peer = ToSockAddr(to, port_, &len);
  (void)sendto(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT, &peer.any, len);
}

std::optional<HelloSocket::Incoming> HelloSocket::Receive() {
  for (;;) {
    SockAddr from;
    socklen_t len = sizeof(from);
    const ssize_t n = recvfrom(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT, &from.any, &len);
    if (n < 0 && (errno == EINTR || errno == ECONNREFUSED || errno == EHOSTUNREACH)) continue;
    if (n < 0) return std::nullopt;
    Incoming in;
    in.from = from.any.sa_family == AF_INET ? Addr::FromV4(ntohl(from.v4.sin_addr.s_addr))
                                            : Addr::FromBytes(from.v6.sin6_addr.s6_addr);
    in.bytes = {buffer_.data(), static_cast<size_t>(n)};
    return in;
  }
}

}  // namespace cw::probe_verbs
