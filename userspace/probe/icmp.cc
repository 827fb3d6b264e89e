// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/icmp.h"

#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "maps/wire.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe {
namespace {

constexpr uint8_t kProtocolUdp = 17;
constexpr size_t kIcmpHeader = 8;

uint16_t Be16(absl::Span<const uint8_t> b, size_t at) { return static_cast<uint16_t>(b[at] << 8 | b[at + 1]); }

Addr V4At(absl::Span<const uint8_t> b, size_t at) {
  return Addr::FromV4(uint32_t{Be16(b, at)} << 16 | Be16(b, at + 2));
}

// Length of the IPv4 header at the start, 0 if there is none.
size_t HeaderLen(absl::Span<const uint8_t> b) {
  if (b.size() < 20 || b[0] >> 4 != 4) return 0;
  const size_t len = size_t{b[0] & 0xfu} * 4;
  return len >= 20 && len <= b.size() ? len : 0;
}

}  // namespace

std::optional<TraceAnswer> ParseTimeExceeded(absl::Span<const uint8_t> packet) {
  const size_t outer = HeaderLen(packet);
  if (outer == 0 || packet[9] != IPPROTO_ICMP || packet.size() < outer + kIcmpHeader) return std::nullopt;
  const absl::Span<const uint8_t> icmp = packet.subspan(outer);
  if (icmp[0] != ICMP_TIME_EXCEEDED || icmp[1] != ICMP_EXC_TTL) return std::nullopt;
  const absl::Span<const uint8_t> quoted = icmp.subspan(kIcmpHeader);
  const size_t inner = HeaderLen(quoted);
  if (inner == 0 || quoted[9] != kProtocolUdp || quoted.size() < inner + 4) return std::nullopt;
  if (Be16(quoted, inner + 2) != CW_ROCE_PORT) return std::nullopt;
  TraceAnswer a;
  a.router = V4At(packet, 12);
  a.local = V4At(quoted, 12);
  a.remote = V4At(quoted, 16);
  a.port = Be16(quoted, inner);
  a.ip_id = Be16(quoted, 4);
  return a;
}

std::optional<TraceAnswer> ParseTimeExceeded6(const Addr& router, absl::Span<const uint8_t> message) {
  constexpr size_t kRound = kIp6Len + kUdpLen + CW_BTH_LEN + offsetof(cw_probe_hdr, round);
  if (message.size() < kIcmpHeader + kRound + 4) return std::nullopt;
  if (message[0] != ICMPV6_TIME_EXCEED || message[1] != ICMPV6_EXC_HOPLIMIT) return std::nullopt;
  const absl::Span<const uint8_t> quoted = message.subspan(kIcmpHeader);
  if (quoted[0] >> 4 != 6 || quoted[6] != kProtocolUdp || Be16(quoted, kIp6Len + 2) != CW_ROCE_PORT) {
    return std::nullopt;
  }
  TraceAnswer a;
  a.router = router;
  a.local = Addr::FromBytes(quoted.data() + 8);
  a.remote = Addr::FromBytes(quoted.data() + 24);
  a.port = Be16(quoted, kIp6Len);
  a.ip_id = Be16(quoted, kRound + 2);
  return a;
}

namespace {

absl::StatusOr<int> Open4() {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMP);
  if (fd < 0) return absl::ErrnoToStatus(errno, "raw ICMP socket for path discovery (CAP_NET_RAW is needed)");
  icmp_filter filter{};
  filter.data = ~(1u << ICMP_TIME_EXCEEDED);  // bits of the types that are not wanted
  if (setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter)) == 0) return fd;
  const int error = errno;
  close(fd);
  return absl::ErrnoToStatus(error, "ICMP filter for path discovery");
}

// -1: none, as where IPv6 is off.
int Open6() {
  const int fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMPV6);
  if (fd < 0) return -1;
  icmp6_filter filter;
  std::memset(&filter, 0xff, sizeof(filter));
  filter.data[ICMPV6_TIME_EXCEED >> 5] &= ~(1u << (ICMPV6_TIME_EXCEED & 31));
  if (setsockopt(fd, IPPROTO_ICMPV6, ICMPV6_FILTER, &filter, sizeof(filter)) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IcmpSocket>> IcmpSocket::Open() {
  const absl::StatusOr<int> v4 = Open4();
  if (!v4.ok()) return v4.status();
  const int poll_fd = epoll_create1(EPOLL_CLOEXEC);  // one to poll for both
  std::unique_ptr<IcmpSocket> out(new IcmpSocket(*v4, Open6(), poll_fd));
  epoll_event readable{};
  readable.events = EPOLLIN;
  for (int fd : {out->fd4_, out->fd6_}) {
    if (fd >= 0 && epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &readable) != 0) {
      return absl::ErrnoToStatus(errno, "polling the sockets of path discovery");
    }
  }
  return out;
}

IcmpSocket::~IcmpSocket() {
  for (int fd : {fd4_, fd6_, poll_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void IcmpSocket::Read(int limit, const std::function<void(const TraceAnswer&)>& answer) {
  std::array<uint8_t, 256> buffer;  // the quoted headers are at the front; the rest may be cut off
  for (int i = 0; i < limit; ++i) {
    const ssize_t n = recv(fd4_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    if (auto a = ParseTimeExceeded({buffer.data(), static_cast<size_t>(n)})) answer(*a);
  }
  for (int i = 0; fd6_ >= 0 && i < limit; ++i) {
    sockaddr_in6 from{};
    socklen_t from_len = sizeof(from);
    const ssize_t n =
        recvfrom(fd6_, buffer.data(), buffer.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &from_len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    const Addr router = Addr::FromBytes(from.sin6_addr.s6_addr);
    if (auto a = ParseTimeExceeded6(router, {buffer.data(), static_cast<size_t>(n)})) answer(*a);
  }
}

}  // namespace cw::probe
