// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/tbf_port.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr uint32_t kHeldBytes = 64 << 20;      // nothing is lost in a pause
constexpr uint32_t kOpenRate = 4'000'000'000;  // bytes per second: above any link of the lab
constexpr uint32_t kOpenBurst = 1 << 20;
constexpr uint32_t kShutRate = 1000;        // 64 s for one packet, with its overhead
constexpr uint16_t kShutOverhead = 60'000;  // what a packet costs above its length: more than the bucket holds

struct Request {
  nlmsghdr header;
  tcmsg tc;
  char attributes[256];
};

rtattr* Append(Request& request, uint16_t type, const void* data, size_t size) {
  auto* attribute = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&request) + request.header.nlmsg_len);
  attribute->rta_type = type;
  attribute->rta_len = static_cast<uint16_t>(RTA_LENGTH(size));
  if (size > 0) std::memcpy(RTA_DATA(attribute), data, size);
  request.header.nlmsg_len += RTA_ALIGN(attribute->rta_len);
  return attribute;
}

// The burst goes by its own attribute, in bytes; the older field counts ticks, and has to be there.
void AppendBucket(Request& request, bool shut, int mtu) {
  tc_tbf_qopt options = {};
  options.rate.rate = shut ? kShutRate : kOpenRate;
  options.rate.overhead = shut ? kShutOverhead : 0;
  options.rate.linklayer = 1;  // Ethernet
  options.limit = kHeldBytes;
  options.buffer = 1;
  const uint32_t burst = shut ? static_cast<uint32_t>(mtu) + 64 : kOpenBurst;
  const char kind[] = "tbf";
  Append(request, TCA_KIND, kind, sizeof(kind));
  rtattr* nest = Append(request, TCA_OPTIONS, nullptr, 0);
  Append(request, TCA_TBF_PARMS, &options, sizeof(options));
  Append(request, TCA_TBF_BURST, &burst, sizeof(burst));
  nest->rta_len = static_cast<uint16_t>(reinterpret_cast<char*>(&request) + request.header.nlmsg_len -
                                        reinterpret_cast<char*>(nest));
}

absl::Status Answer(int fd, uint32_t sequence) {
  alignas(nlmsghdr) char buffer[4096];
  for (;;) {
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "read the answer about a queue");
    auto* reply = reinterpret_cast<nlmsghdr*>(buffer);
    if (!NLMSG_OK(reply, static_cast<uint32_t>(n)) || reply->nlmsg_seq != sequence) continue;
    if (reply->nlmsg_type != NLMSG_ERROR) continue;
    const int error = -static_cast<nlmsgerr*>(NLMSG_DATA(reply))->error;
    return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "change a port's token bucket");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TbfPort>> TbfPort::Open(const Place& place) {
  std::unique_ptr<TbfPort> port(new TbfPort(place));
  absl::StatusOr<int> netlink = SocketInNetns(place.netns_path, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (!netlink.ok()) return netlink.status();
  port->netlink_ = *netlink;
  absl::StatusOr<int> packet = SocketInNetns(place.netns_path, AF_PACKET, SOCK_RAW, 0);
  if (!packet.ok()) return packet.status();
  port->packet_ = *packet;
  return port;
}

TbfPort::~TbfPort() {
  if (netlink_ >= 0) close(netlink_);
  if (packet_ >= 0) close(packet_);
}

absl::Status TbfPort::Send(bool shut, bool create) {
  Request request = {};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(tcmsg));
  request.header.nlmsg_type = RTM_NEWQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  if (create) request.header.nlmsg_flags |= NLM_F_CREATE | NLM_F_EXCL;
  request.header.nlmsg_seq = ++sequence_;
  request.tc.tcm_family = AF_UNSPEC;
  request.tc.tcm_ifindex = place_.ifindex;
  request.tc.tcm_parent = place_.parent;
  request.tc.tcm_handle = place_.handle;
  AppendBucket(request, shut, place_.mtu);
  if (send(netlink_, &request, request.header.nlmsg_len, 0) < 0) return absl::ErrnoToStatus(errno, "change a queue");
  return Answer(netlink_, sequence_);
}

absl::Status TbfPort::Add() { return Send(false, true); }

absl::Status TbfPort::Shut() { return Send(true, false); }

absl::Status TbfPort::Let() {
  if (absl::Status status = Send(false, false); !status.ok()) return status;
  return Kick();
}

// A bucket that waits for its old, slow rate looks up only when a packet comes: send it one that everybody ignores.
absl::Status TbfPort::Kick() {
  constexpr uint16_t kLocalExperimental = 0x88B5;  // IEEE 802, for local experiments
  unsigned char frame[ETH_ZLEN] = {};
  std::memset(frame, 0xff, ETH_ALEN);
  const uint16_t type = htons(kLocalExperimental);
  std::memcpy(frame + 2 * ETH_ALEN, &type, sizeof(type));
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = place_.ifindex;
  to.sll_protocol = type;
  const ssize_t n = sendto(packet_, frame, sizeof(frame), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
  // A full queue answers ENOBUFS and has looked up all the same; a port that is down has nothing to wake.
  if (n < 0 && errno != ENOBUFS && errno != ENETDOWN) return absl::ErrnoToStatus(errno, "wake a queue");
  return absl::OkStatus();
}

}  // namespace cw::lab
