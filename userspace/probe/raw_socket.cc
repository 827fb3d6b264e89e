// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/raw_socket.h"

#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::probe {
namespace {

constexpr int kSendBufferBytes = 4 << 20;  // a tick of a large mesh at once

}  // namespace

absl::StatusOr<std::shared_ptr<RawSocket>> RawSocket::Open(int ifindex) {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
  if (fd < 0) return absl::ErrnoToStatus(errno, "raw socket for probes (CAP_NET_RAW is needed)");
  auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  if (ifindex != 0 && setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding the probe socket to interface ", ifindex));
  }
  const int on = 1;
  if (setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, "IP_HDRINCL on the probe socket");
  }
  // Larger than the limit of ordinary users where that is permitted, else as large as it is.
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof(kSendBufferBytes)) != 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  }
  std::move(close_fd).Cancel();
  return std::shared_ptr<RawSocket>(new RawSocket(fd, ifindex));
}

RawSocket::~RawSocket() { close(fd_); }

absl::Status RawSocket::Send(absl::Span<const uint8_t> packet) {
  if (packet.size() < 20) return absl::InvalidArgumentError("not an IPv4 packet");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, packet.data() + 16, 4);
  for (;;) {
    const ssize_t n =
        sendto(fd_, packet.data(), packet.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    if (n >= 0) return absl::OkStatus();
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return absl::UnavailableError("the send queue is full");
    return absl::ErrnoToStatus(errno, "sending on the probe socket");
  }
}

int RawSocket::SendBatch(mmsghdr* messages, unsigned count) {
  const int n = sendmmsg(fd_, messages, count, MSG_DONTWAIT);
  return n >= 0 ? n : -errno;
}

}  // namespace cw::probe
