// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/fabric_rig.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr uint16_t kRocePort = 4791;
constexpr absl::Duration kQuiet = absl::Seconds(1);
constexpr absl::Duration kLong = absl::Seconds(20);

sockaddr_in Address(const std::string& ip, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, ip.c_str(), &address.sin_addr);
  return address;
}

int OpenOrDie(const std::string& netns) {
  absl::StatusOr<int> fd = SocketInNetns(netns, AF_INET, SOCK_DGRAM, 0);
  if (!fd.ok()) {
    ADD_FAILURE() << fd.status();
    std::abort();
  }
  return *fd;
}

void SetOption(int fd, int level, int option, int value) {
  EXPECT_EQ(setsockopt(fd, level, option, &value, sizeof(value)), 0) << strerror(errno);
}

std::vector<uint8_t> Encode(const Datagram& d) {
  std::vector<uint8_t> bytes(kBth + d.payload);
  bytes[0] = d.opcode;
  bytes[2] = bytes[3] = 0xff;
  const uint32_t qpn = htonl(d.dest_qpn & 0xffffff), psn = htonl(d.psn & 0xffffff);
  std::memcpy(&bytes[4], &qpn, 4);
  std::memcpy(&bytes[8], &psn, 4);
  return bytes;
}

bool WaitFor(int fd, short events, absl::Duration wait) {
  pollfd p = {fd, events, 0};
  return poll(&p, 1, static_cast<int>(absl::ToInt64Milliseconds(wait))) > 0;
}

}  // namespace

std::string TestLab(const std::string& suffix) {
  for (const std::string& lab : Fabric::List()) {
    int pid = 0;
    if (absl::StartsWith(lab, "ft") &&
        absl::SimpleAtoi(lab.substr(2, lab.find_first_not_of("0123456789", 2) - 2), &pid) && pid > 0 && kill(pid, 0) &&
        errno == ESRCH) {
      Fabric::Down(lab).IgnoreError();
    }
  }
  return absl::StrCat("ft", getpid(), suffix);
}

FabricSpec TestSpec(const std::string& suffix) {
  FabricSpec spec;
  spec.lab = TestLab(suffix);
  return spec;
}

std::unique_ptr<Fabric> UpOrDie(const FabricSpec& spec) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Up(spec);
  if (!fabric.ok()) {
    ADD_FAILURE() << fabric.status();
    std::abort();
  }
  return *std::move(fabric);
}

int FrameBytes(const Datagram& datagram) { return kEthernet + kIp + kUdp + kBth + datagram.payload; }

Sender::Sender(const Fabric& fabric, int from, int to, uint16_t sport, int tos, int ttl)
    : fd_(OpenOrDie(fabric.HostNetns(from))) {
  SetOption(fd_, IPPROTO_IP, IP_TOS, tos);
  SetOption(fd_, IPPROTO_IP, IP_TTL, ttl);
  SetOption(fd_, IPPROTO_IP, IP_RECVERR, 1);
  SetOption(fd_, SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20);
  SetOption(fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in local = Address(fabric.HostAddr(from), sport), remote = Address(fabric.HostAddr(to), kRocePort);
  EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0) << sport << ": " << strerror(errno);
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&remote), sizeof(remote)), 0) << strerror(errno);
}

Sender::~Sender() { close(fd_); }

bool Sender::Send(const Datagram& datagram) {
  const std::vector<uint8_t> bytes = Encode(datagram);
  return send(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
}

std::string Sender::IcmpErrorFrom() {
  if (!WaitFor(fd_, 0, kLong)) return "";  // POLLERR needs no asking for
  char data[2048], control[512];
  iovec part = {data, sizeof(data)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(fd_, &message, MSG_ERRQUEUE) < 0) return "";
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) continue;
    auto* error = reinterpret_cast<sock_extended_err*>(CMSG_DATA(c));
    if (error->ee_origin != SO_EE_ORIGIN_ICMP) return "";
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(SO_EE_OFFENDER(error))->sin_addr, text, sizeof(text));
  }
  return "";
}

Receiver::Receiver(const Fabric& fabric, int host) : fd_(OpenOrDie(fabric.HostNetns(host))) {
  SetOption(fd_, IPPROTO_IP, IP_RECVTOS, 1);
  SetOption(fd_, SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20);
  sockaddr_in local = Address(fabric.HostAddr(host), kRocePort);
  EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0) << strerror(errno);
}

Receiver::~Receiver() { close(fd_); }

std::optional<Received> Receiver::Next(absl::Duration wait) {
  if (!WaitFor(fd_, POLLIN, wait)) return std::nullopt;
  uint8_t data[9000];
  char control[64];
  sockaddr_in from = {};
  iovec part = {data, sizeof(data)};
  msghdr message = {};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(fd_, &message, 0);
  if (size < kBth) return std::nullopt;
  Received r;
  r.opcode = data[0];
  std::memcpy(&r.dest_qpn, data + 4, 4);
  std::memcpy(&r.psn, data + 8, 4);
  r.dest_qpn = ntohl(r.dest_qpn) & 0xffffff;
  r.psn = ntohl(r.psn) & 0xffffff;
  r.sport = ntohs(from.sin_port);
  for (ssize_t i = kBth; i < size; ++i) r.flipped_bits += std::popcount(data[i]);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) r.tos = *CMSG_DATA(c);
  }
  return r;
}

std::vector<Received> Receiver::Take(size_t count) {
  std::vector<Received> all;
  while (all.size() < count) {
    std::optional<Received> one = Next(kQuiet);
    if (!one) break;
    all.push_back(*one);
  }
  return all;
}

uint16_t PortOver(const Fabric& fabric, int from, int to, int spine, uint16_t first) {
  for (int port = first; port < 65536; ++port) {
    absl::StatusOr<int> path = fabric.PathOf(from, to, static_cast<uint16_t>(port));
    if (path.ok() && *path == spine) return static_cast<uint16_t>(port);
  }
  ADD_FAILURE() << "no port leads over spine " << spine;
  return 0;
}

LinkCounters Counters(const Fabric& fabric, const LinkDirection& link) {
  absl::StatusOr<LinkCounters> counters = fabric.Link(link);
  EXPECT_TRUE(counters.ok()) << counters.status();
  return counters.ok() ? *counters : LinkCounters{};
}

}  // namespace cw::lab
