// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_format.h"
#include "userspace/lab/roce_packet_crc.h"

namespace cw::lab {
namespace {

// Frames hold the largest RoCE packet with the ring's own header; a block holds 28 of them.
constexpr uint32_t kFrameBytes = 4608;
constexpr uint32_t kBlockBytes = 1u << 17;
constexpr uint32_t kBlocks = 40;
constexpr uint32_t kFramesPerBlock = kBlockBytes / kFrameBytes;
constexpr uint32_t kFrames = kBlocks * kFramesPerBlock;
constexpr uint32_t kMaxPayload = 4096;

using Pattern = std::array<uint8_t, kMaxPayload>;
constexpr Pattern MakePattern() {
  Pattern p{};
  uint32_t x = 0x2545f491;
  for (uint8_t& b : p) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    b = static_cast<uint8_t>(x >> 24);
  }
  return p;
}
constexpr Pattern kPattern = MakePattern();
constexpr std::array<uint8_t, 16> kZeros{};

absl::Status Failed(const char* what) { return absl::ErrnoToStatus(errno, what); }

template <typename T>
bool SetOption(int fd, int level, int name, const T& value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

bool Attach(int fd, sock_filter* code, size_t n) {
  return SetOption(fd, SOL_SOCKET, SO_ATTACH_FILTER, sock_fprog{static_cast<uint16_t>(n), code});
}

}  // namespace

struct HostPort::Slot {
  std::array<uint8_t, kMaxRoceHeader> header;
  std::array<uint8_t, 3 + kIcrcBytes> tail;  // padding and ICRC
  std::array<iovec, 3> iov;
  sockaddr_in to;
  sockaddr_in6 to6;
  bool stamped;
};

HostPort::HostPort(uint32_t address, bool ip6, uint32_t verify_every, uint32_t stamp_every)
    : address_(address),
      ip6_(ip6),
      verify_every_(std::max(1u, verify_every)),
      stamp_every_(stamp_every),
      slots_(kSlots) {}

HostPort::~HostPort() {
  if (ring_ != nullptr) munmap(ring_, size_t{kBlocks} * kBlockBytes);
  for (int fd : {send_fd_, receive_fd_, sink_fd_}) {
    if (fd >= 0) close(fd);
  }
}

absl::StatusOr<std::unique_ptr<HostPort>> HostPort::Open(const HostSpec& host, uint32_t verify_every,
                                                         uint32_t stamp_every) {
  in_addr address{};
  in6_addr address6{};
  const bool ip6 = inet_pton(AF_INET6, host.address.c_str(), &address6) == 1 &&
                   std::memcmp(&address6, kLabPrefix6, sizeof(kLabPrefix6)) == 0;
  if (ip6) {
    std::memcpy(&address, address6.s6_addr + sizeof(kLabPrefix6), sizeof(address));
  } else if (inet_pton(AF_INET, host.address.c_str(), &address) != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("host %s: \"%s\" is neither an IPv4 address nor fd00:: with one", host.name, host.address));
  }
  std::unique_ptr<HostPort> port(new HostPort(ntohl(address.s_addr), ip6, verify_every, stamp_every));
  // setns changes a thread for good, so a thread of its own opens the sockets.
  absl::Status status;
  std::thread([&] { status = port->OpenInside(host); }).join();
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrFormat("host %s: %s", host.name, std::string(status.message())));
  }
  return port;
}

absl::Status HostPort::OpenInside(const HostSpec& host) {
  if (!host.netns_path.empty()) {
    const int ns = open(host.netns_path.c_str(), O_RDONLY | O_CLOEXEC);
    if (ns < 0) return Failed(("open " + host.netns_path).c_str());
    const bool entered = setns(ns, CLONE_NEWNET) == 0;
    const int error = errno;
    close(ns);
    errno = error;
    if (!entered) return Failed(("setns " + host.netns_path).c_str());
  }
  if (absl::Status s = OpenSink(); !s.ok()) return s;
  if (absl::Status s = OpenReceiver(host.device); !s.ok()) return s;
  return OpenSender();
}

absl::Status HostPort::OpenSender() {
  send_fd_ = socket(ip6_ ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW);
  if (send_fd_ < 0) return Failed("raw socket");
  if (!ip6_ && !SetOption(send_fd_, IPPROTO_IP, IP_HDRINCL, 1)) return Failed("IP_HDRINCL");
  // Switches' word on sizes is the kernel's business, not a NIC's.
  const bool heedless = ip6_ ? SetOption(send_fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE)
                             : SetOption(send_fd_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (!heedless) return Failed("MTU_DISCOVER");
  // Packets wait in the host's queueing discipline on this budget: room for 10 ms at several Gbit/s.
  if (!SetOption(send_fd_, SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20)) return Failed("SO_SNDBUFFORCE");
  if (stamp_every_ == 0) return absl::OkStatus();
  // Stamped packets come back whole and wait on this budget until they are read.
  if (!SetOption(send_fd_, SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)) return Failed("SO_RCVBUFFORCE");
  if (!SetOption(send_fd_, SOL_SOCKET, SO_TIMESTAMPING, int{SOF_TIMESTAMPING_SOFTWARE})) {
    return Failed("SO_TIMESTAMPING");
  }
  return absl::OkStatus();
}

absl::Status HostPort::OpenReceiver(const std::string& device) {
  receive_fd_ = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (receive_fd_ < 0) return Failed("packet socket");
  // UDP to port 4791, no fragment, no manufacturer-specific opcode (such as an agent's probes).
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 8),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 6, 0),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRoceUdpPort, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, 8),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0xe0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  sock_filter code6[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 5),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 42), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRoceUdpPort, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 48), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0xe0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),  BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const bool attached =
      ip6_ ? Attach(receive_fd_, code6, std::size(code6)) : Attach(receive_fd_, code, std::size(code));
  if (!attached) return Failed("SO_ATTACH_FILTER");
  if (!SetOption(receive_fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)) return Failed("PACKET_IGNORE_OUTGOING");
  if (!SetOption(receive_fd_, SOL_PACKET, PACKET_VERSION, int{TPACKET_V2})) return Failed("PACKET_VERSION");
  if (stamp_every_ > 0 && !SetOption(receive_fd_, SOL_SOCKET, SO_TIMESTAMPING,
                                     int{SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE})) {
    return Failed("SO_TIMESTAMPING");
  }
  const tpacket_req request{kBlockBytes, kBlocks, kFrameBytes, kFrames};
  if (!SetOption(receive_fd_, SOL_PACKET, PACKET_RX_RING, request)) return Failed("PACKET_RX_RING");
  void* ring = mmap(nullptr, size_t{kBlocks} * kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, receive_fd_, 0);
  if (ring == MAP_FAILED) return Failed("mmap of the packet ring");
  ring_ = static_cast<uint8_t*>(ring);
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ip6_ ? ETH_P_IPV6 : ETH_P_IP);
  at.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  if (at.sll_ifindex == 0) return Failed(("no device " + device).c_str());
  if (bind(receive_fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) return Failed("bind of the packet socket");
  return absl::OkStatus();
}

absl::Status HostPort::OpenSink() {
  sink_fd_ = socket(ip6_ ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (sink_fd_ < 0) return Failed("UDP socket");
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  if (!Attach(sink_fd_, nothing, 1)) return Failed("SO_ATTACH_FILTER");
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(kRoceUdpPort);
  sockaddr_in6 at6{};
  at6.sin6_family = AF_INET6;
  at6.sin6_port = htons(kRoceUdpPort);
  const sockaddr* any = ip6_ ? reinterpret_cast<sockaddr*>(&at6) : reinterpret_cast<sockaddr*>(&at);
  // Taken already: then somebody else keeps the kernel from answering, which is all that this socket is for.
  if (bind(sink_fd_, any, ip6_ ? sizeof(at6) : sizeof(at)) != 0 && errno != EADDRINUSE) {
    return Failed("bind to UDP port 4791");
  }
  return absl::OkStatus();
}

size_t HostPort::Receive(size_t budget, PacketSink* sink) {
  size_t taken = 0;
  for (; taken < budget; ++taken) {
    uint8_t* frame = ring_ + size_t{kBlockBytes} * (ring_next_ / kFramesPerBlock) +
                     size_t{kFrameBytes} * (ring_next_ % kFramesPerBlock);
    std::atomic_ref<uint32_t> status(reinterpret_cast<tpacket2_hdr*>(frame)->tp_status);
    const uint32_t flags = status.load(std::memory_order_acquire);
    if ((flags & TP_STATUS_USER) == 0) break;
    if (flags & TP_STATUS_LOSING) {
      tpacket_stats stats{};
      socklen_t n = sizeof(stats);
      if (getsockopt(receive_fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &n) == 0)
        counters_.ring_drops += stats.tp_drops;
    }
    TakeFrame(frame, sink);
    status.store(TP_STATUS_KERNEL, std::memory_order_release);
    ring_next_ = (ring_next_ + 1) % kFrames;
  }
  return taken;
}

void HostPort::TakeFrame(uint8_t* frame, PacketSink* sink) {
  ++counters_.received;
  const auto* header = reinterpret_cast<const tpacket2_hdr*>(frame);
  const std::span<const uint8_t> ip(frame + header->tp_net, header->tp_snaplen);
  size_t bytes = 0;
  const std::optional<RocePacket> packet = ParsePacket(ip, &bytes);
  if (!packet || packet->destination != address_ || packet->ip6 != ip6_) {
    ++counters_.unknown;
    return;
  }
  if (++since_verified_ >= verify_every_) {
    since_verified_ = 0;
    if (!IcrcIsRight(ip.first(bytes))) {
      ++counters_.icrc_errors;
      return;
    }
  }
  if (Stamped(*packet)) sink->OnKernelStamp(*packet, false, int64_t{header->tp_sec} * 1'000'000'000 + header->tp_nsec);
  sink->OnPacket(*packet);
}

bool HostPort::Stamped(const RocePacket& packet) const {
  return stamp_every_ > 0 && packet.opcode <= kReadResponseOnly && packet.psn % stamp_every_ == 0;
}

const HostPort::PayloadCrc& HostPort::CrcOfPayload(const uint8_t* data, uint32_t bytes, uint32_t pad) {
  const uint32_t key = data == kZeros.data() ? bytes | 0x80000000u : bytes;
  PayloadCrc& entry = payload_crc_[(key ^ key >> 31) % std::size(payload_crc_)];
  if (entry.bytes != key) {
    entry.bytes = key;
    entry.crc = Crc32Raw(Crc32Raw(0, {data, bytes}), {kZeros.data(), pad});
    entry.zeros = Crc32ZerosOperator(bytes + pad);
  }
  return entry;
}

void HostPort::Queue(const RocePacket& queued) {
  RocePacket packet = queued;
  packet.ip6 = ip6_;
  Slot& slot = slots_[queued_++];
  const size_t header = EncodeHeaders(packet, slot.header.data());
  const uint8_t* payload = packet.opcode == kCnp ? kZeros.data() : kPattern.data();
  const uint32_t pad = packet.PadBytes();
  uint32_t state = IcrcState({slot.header.data(), header});
  if (packet.payload_bytes > 0) {
    // The payload's share of the CRC is known, so only the header is walked: crc(A‖B) = crc(A)·x^|B| + crc(B).
    const PayloadCrc& known = CrcOfPayload(payload, packet.payload_bytes, pad);
    state = Crc32Multiply(known.zeros, state) ^ known.crc;
  }
  const uint32_t icrc = ~state;
  slot.tail.fill(0);
  for (size_t i = 0; i < kIcrcBytes; ++i) slot.tail[pad + i] = static_cast<uint8_t>(icrc >> (8 * i));
  slot.iov[0] = {slot.header.data(), header};
  slot.iov[1] = {const_cast<uint8_t*>(payload), packet.payload_bytes};
  slot.iov[2] = {slot.tail.data(), pad + kIcrcBytes};
  slot.to = {};
  slot.to.sin_family = AF_INET;
  slot.to.sin_addr.s_addr = htonl(packet.destination);
  slot.to6 = {};
  slot.to6.sin6_family = AF_INET6;
  std::memcpy(slot.to6.sin6_addr.s6_addr, kLabPrefix6, sizeof(kLabPrefix6));
  std::memcpy(slot.to6.sin6_addr.s6_addr + sizeof(kLabPrefix6), &slot.to.sin_addr, 4);
  slot.stamped = Stamped(packet);
}

void HostPort::Flush() {
  struct StampRequest {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(uint32_t))];
  } request;
  cmsghdr* ask = reinterpret_cast<cmsghdr*>(request.bytes);
  *ask = {CMSG_LEN(sizeof(uint32_t)), SOL_SOCKET, SO_TIMESTAMPING};
  const uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE;
  std::memcpy(CMSG_DATA(ask), &flags, sizeof(flags));
  std::array<mmsghdr, kSlots> messages;
  for (size_t i = 0; i < queued_; ++i) {
    Slot& slot = slots_[i];
    messages[i] = {};
    msghdr& m = messages[i].msg_hdr;
    m.msg_name = ip6_ ? static_cast<void*>(&slot.to6) : &slot.to;
    m.msg_namelen = ip6_ ? sizeof(slot.to6) : sizeof(slot.to);
    m.msg_iov = slot.iov.data();
    m.msg_iovlen = slot.iov.size();
    if (slot.stamped) {
      m.msg_control = request.bytes;
      m.msg_controllen = sizeof(request.bytes);
    }
  }
  size_t done = 0;
  while (done < queued_) {
    const int n = sendmmsg(send_fd_, &messages[done], static_cast<unsigned>(queued_ - done), 0);
    if (n > 0) {
      counters_.sent += static_cast<uint64_t>(n);
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EINTR) {
      break;
    } else {
      ++counters_.send_errors;
      ++done;
    }
  }
  if (done > 0 && done < queued_) {
    // What is left moves to the front; its vectors point into the slot and follow it.
    for (size_t i = done; i < queued_; ++i) {
      Slot& to = slots_[i - done];
      to = slots_[i];
      to.iov[0].iov_base = to.header.data();
      to.iov[2].iov_base = to.tail.data();
    }
  }
  queued_ -= done;
}

void HostPort::ReadSendStamps(PacketSink* sink) {
  if (stamp_every_ == 0) return;
  std::array<uint8_t, kMaxRoceHeader + 64 + kMaxPayload> data;
  alignas(cmsghdr) char control[256];
  for (int i = 0; i < 64; ++i) {
    iovec iov{data.data(), data.size()};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(send_fd_, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (n <= 0) return;
    // The packet comes back as it left, with its Ethernet header in front.
    if (n <= ETH_HLEN) continue;
    size_t bytes = 0;
    const auto packet = ParsePacket({data.data() + ETH_HLEN, static_cast<size_t>(n) - ETH_HLEN}, &bytes);
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); packet && c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPING) continue;
      scm_timestamping stamp;
      std::memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
      sink->OnKernelStamp(*packet, true, stamp.ts[0].tv_sec * 1'000'000'000 + stamp.ts[0].tv_nsec);
    }
  }
}

}  // namespace cw::lab
