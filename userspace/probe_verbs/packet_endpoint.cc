// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/packet_endpoint.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "maps/unique_fd.h"
#include "maps/wire.h"
#include "userspace/probe/packet_bytes.h"
#include "userspace/probe_verbs/soft_roce.h"
#include "userspace/probe_verbs/ud_packet.h"

namespace cw::probe_verbs {
namespace {

constexpr int kMostPackets = 64;
constexpr int kReceiveBufferBytes = 1 << 20;  // as many probes as an endpoint by verbs has receives posted

class PacketEndpointImpl final : public PacketEndpoint {
 public:
  PacketEndpointImpl(maps::UniqueFd fd, uint32_t ifindex, const Addr& address, std::shared_ptr<probe::RawSocket> raw)
      : fd_(std::move(fd)), ifindex_(ifindex), address_(address), raw_(std::move(raw)) {}

  const Addr& address() const override { return address_; }
  const std::string& device() const override { return device_; }
  uint32_t qpn() const override { return CW_BTH_QPN; }
  size_t max_payload() const override { return kMaxPayload; }
  absl::Span<const uint16_t> ports() const override { return {}; }
  uint16_t AnyPort(uint32_t turn) const override { return static_cast<uint16_t>(kFirstRocePort + (turn & 0x3fff)); }

  bool CanSend(const Datagram&) override { return true; }
  absl::Status Send(const Datagram& datagram) override;

  int event_fd() const override { return fd_.get(); }
  absl::Status Arm() override { return absl::OkStatus(); }  // a socket is readable as long as there is something
  void TakeEvents() override {}
  int Poll(absl::FunctionRef<void(const Received&)> each) override;

  bool has_clock() const override { return false; }
  void KeepClock(int64_t) override {}
  ArrivalStamps stamps() const override { return {}; }

  absl::Status Listen(bool on) override;

 private:
  void Show(absl::Span<const uint8_t> packet, absl::FunctionRef<void(const Received&)> each) const;

  const maps::UniqueFd fd_;
  const uint32_t ifindex_;
  const Addr address_;
  const std::string device_;
  const std::shared_ptr<probe::RawSocket> raw_;
  std::atomic<bool> listening_{false};
};

absl::Status PacketEndpointImpl::Listen(bool on) {
  if (listening_.exchange(on) == on) return absl::OkStatus();
  sockaddr_ll where = {};
  where.sll_family = AF_PACKET;
  where.sll_protocol = on ? htons(CW_ETH_UD_PROBE) : 0;
  where.sll_ifindex = static_cast<int>(ifindex_);
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("binding the packet socket of interface ", ifindex_));
}

absl::Status PacketEndpointImpl::Send(const Datagram& datagram) {
  UdPacket bytes;
  const absl::Span<const uint8_t> packet = BuildUdSend({.from = address_,
                                                        .to = datagram.to,
                                                        .port = datagram.port,
                                                        .traffic_class = datagram.traffic_class,
                                                        .label = datagram.label,
                                                        .qpn = datagram.qpn,
                                                        .from_qpn = qpn(),
                                                        .payload = datagram.payload},
                                                       &bytes);
  if (packet.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no probe of ", datagram.payload.size(), " bytes goes to ", datagram.to.ToString()));
  }
  return raw_->Send(packet);
}

void PacketEndpointImpl::Show(absl::Span<const uint8_t> packet, absl::FunctionRef<void(const Received&)> each) const {
  const std::optional<UdSend> send = ParseUdSend(packet);
  if (!send || send->qpn != qpn()) return;
  std::array<uint8_t, kGrhLen> grh{};
  const size_t ip_len = probe::IpLen(send->from.is_v4());
  std::copy_n(packet.begin(), ip_len, grh.end() - static_cast<ptrdiff_t>(ip_len));
  each({.grh = grh, .payload = send->payload, .qpn = send->from_qpn, .arrived_ns = std::nullopt});
}

int PacketEndpointImpl::Poll(absl::FunctionRef<void(const Received&)> each) {
  std::array<uint8_t, kMaxUdPacket + 64> bytes;  // with what Ethernet may have added
  int n = 0;
  for (; n < kMostPackets; ++n) {
    sockaddr_ll from = {};
    socklen_t from_len = sizeof(from);
    const ssize_t len = recvfrom(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC,
                                 reinterpret_cast<sockaddr*>(&from), &from_len);
    if (len < 0 && errno != EINTR) break;  // none left; a NIC that has gone tells by its own events
    if (len <= 0 || from.sll_pkttype != PACKET_HOST) continue;
    Show(absl::MakeConstSpan(bytes).first(std::min(static_cast<size_t>(len), bytes.size())), each);
  }
  return n;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PacketEndpoint>> PacketEndpoint::Open(uint32_t ifindex, const Addr& address,
                                                                     std::shared_ptr<probe::RawSocket> raw) {
  // SOCK_DGRAM: packets from their IP header on. Protocol 0: none until it is bound to one.
  maps::UniqueFd fd(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "packet socket for probes (CAP_NET_RAW is needed)");
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(kReceiveBufferBytes));
  return std::make_unique<PacketEndpointImpl>(std::move(fd), ifindex, address, std::move(raw));
}

}  // namespace cw::probe_verbs
