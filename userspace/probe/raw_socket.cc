// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/raw_socket.h"

#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe {
namespace {

constexpr int kSendBufferBytes = 4 << 20;  // a tick of a large mesh at once

absl::StatusOr<int> OpenFamily(int family, int ifindex) {
  const int fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
  if (fd < 0) return absl::ErrnoToStatus(errno, "raw socket for probes (CAP_NET_RAW is needed)");
  auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  if (ifindex != 0 && setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding the probe socket to interface ", ifindex));
  }
  const int on = 1;
  const bool v4 = family == AF_INET;  // IPv6 sockets of IPPROTO_RAW take packets with their header anyway
  if (v4 && setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, "IP_HDRINCL on the probe socket");
  }
  // What switches said of sizes before is not believed: it was of one path, and the kernel takes it for all.
  const int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
  if (setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe, sizeof(probe)) !=
      0) {
    return absl::ErrnoToStatus(errno, "path MTU discovery of the probe socket");
  }
  // Larger than the limit of ordinary users where that is permitted, else as large as it is.
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof(kSendBufferBytes)) != 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  }
  std::move(close_fd).Cancel();
  return fd;
}

}  // namespace

Destination::Destination(absl::Span<const uint8_t> packet) {
  std::memset(&v6, 0, sizeof(v6));
  if (IsIp6(packet)) {
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, packet.data() + 24, 16);
    len = sizeof(v6);
  } else {
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, packet.data() + 16, 4);
    len = sizeof(v4);
  }
}

absl::StatusOr<std::shared_ptr<RawSocket>> RawSocket::Open(int ifindex) {
  const absl::StatusOr<int> v4 = OpenFamily(AF_INET, ifindex);
  if (!v4.ok()) return v4.status();
  const absl::StatusOr<int> v6 = OpenFamily(AF_INET6, ifindex);  // may be missing: sending then says so
  return std::shared_ptr<RawSocket>(new RawSocket(*v4, v6.value_or(-1), ifindex));
}

RawSocket::~RawSocket() {
  close(fd4_);
  if (fd6_ >= 0) close(fd6_);
}

absl::Status RawSocket::Send(absl::Span<const uint8_t> packet) {
  if (packet.empty() || packet.size() < IpLen(packet)) return absl::InvalidArgumentError("not an IP packet");
  const Destination to(packet);
  const int fd = IsIp6(packet) ? fd6_ : fd4_;
  if (fd < 0) return absl::UnimplementedError("this kernel has no IPv6");
  for (;;) {
    const ssize_t n =
        sendto(fd, packet.data(), packet.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to.v6), to.len);
    if (n >= 0) return absl::OkStatus();
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return absl::UnavailableError("the send queue is full");
    return absl::ErrnoToStatus(errno, "sending on the probe socket");
  }
}

int RawSocket::SendBatch(bool v6, mmsghdr* messages, unsigned count) {
  const int fd = v6 ? fd6_ : fd4_;
  if (fd < 0) return -EAFNOSUPPORT;
  const int n = sendmmsg(fd, messages, count, MSG_DONTWAIT);
  return n >= 0 ? n : -errno;
}

}  // namespace cw::probe
