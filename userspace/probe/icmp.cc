// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/icmp.h"

#include <linux/icmp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "maps/wire.h"

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

absl::StatusOr<std::unique_ptr<IcmpSocket>> IcmpSocket::Open() {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMP);
  if (fd < 0) return absl::ErrnoToStatus(errno, "raw ICMP socket for path discovery (CAP_NET_RAW is needed)");
  auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  icmp_filter filter{};
  filter.data = ~(1u << ICMP_TIME_EXCEEDED);  // bits of the types that are not wanted
  if (setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter)) != 0) {
    return absl::ErrnoToStatus(errno, "ICMP filter for path discovery");
  }
  std::move(close_fd).Cancel();
  return std::unique_ptr<IcmpSocket>(new IcmpSocket(fd));
}

IcmpSocket::~IcmpSocket() { close(fd_); }

void IcmpSocket::Read(int limit, const std::function<void(const TraceAnswer&)>& answer) {
  std::array<uint8_t, 256> buffer;  // the quoted headers are at the front; the rest may be cut off
  for (int i = 0; i < limit; ++i) {
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    if (auto a = ParseTimeExceeded({buffer.data(), static_cast<size_t>(n)})) answer(*a);
  }
}

}  // namespace cw::probe
