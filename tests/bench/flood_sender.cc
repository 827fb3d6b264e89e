// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/flood_sender.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::bench {
namespace {

constexpr size_t kBatch = 64;
constexpr int64_t kSleepNs = 50'000, kBehindNs = 10'000'000;  // later than that is given up, not made good

absl::StatusOr<maps::UniqueFd> PortSocket(const std::string& netns, const std::string& device, int protocol) {
  maps::UniqueFd fd;
  const absl::Status status = lab::RunInNetns(netns, [&]() -> absl::Status {
    fd.reset(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (!fd.ok()) return absl::ErrnoToStatus(errno, "packet socket");
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(static_cast<uint16_t>(protocol));
    at.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
    if (at.sll_ifindex == 0 || bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("bind to ", device));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FloodSender>> FloodSender::Open(const std::string& netns, const std::string& device) {
  absl::StatusOr<maps::UniqueFd> fd = PortSocket(netns, device, 0);
  if (!fd.ok()) return fd.status();
  const int past_the_queue = 1, room = 8 << 20;
  if (setsockopt(fd->get(), SOL_PACKET, PACKET_QDISC_BYPASS, &past_the_queue, sizeof(past_the_queue)) != 0)
    return absl::ErrnoToStatus(errno, "PACKET_QDISC_BYPASS");
  if (setsockopt(fd->get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0)
    return absl::ErrnoToStatus(errno, "SO_SNDBUFFORCE");
  return std::unique_ptr<FloodSender>(new FloodSender(*std::move(fd)));
}

FloodSender::~FloodSender() { Stop(); }

void FloodSender::Start(const std::string& frame, double pps) {
  Stop();
  stop_ = false;
  thread_ = std::thread([this, frame, pps] { Loop(frame, pps); });
}

void FloodSender::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void FloodSender::Loop(const std::string& frame, double pps) {
  iovec part{const_cast<char*>(frame.data()), frame.size()};
  std::array<mmsghdr, kBatch> batch{};
  for (mmsghdr& message : batch) message.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1};
  const int64_t interval_ns = pps > 0 ? static_cast<int64_t>(1e9 * kBatch / pps) : 0;
  for (int64_t due_ns = lab::MonotonicNs(); !stop_.load(std::memory_order_relaxed); due_ns += interval_ns) {
    const int64_t now_ns = lab::MonotonicNs();
    if (due_ns - now_ns > kSleepNs) absl::SleepFor(absl::Nanoseconds(due_ns - now_ns));
    due_ns = std::max(due_ns, now_ns - kBehindNs);
    const int taken = sendmmsg(socket_.get(), batch.data(), kBatch, MSG_DONTWAIT);
    sent_ += static_cast<uint64_t>(std::max(taken, 0));
    refused_ += kBatch - static_cast<uint64_t>(std::max(taken, 0));
  }
}

absl::Status WatchPort(const std::string& netns, const std::string& device, absl::Duration limit,
                       const std::function<bool(const std::string& frame, bool leaves)>& see) {
  const absl::StatusOr<maps::UniqueFd> fd = PortSocket(netns, device, ETH_P_ALL);
  if (!fd.ok()) return fd.status();
  std::string frame;
  for (const absl::Time deadline = absl::Now() + limit; absl::Now() < deadline;) {
    pollfd ready{.fd = fd->get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    frame.resize(9000);
    sockaddr_ll from{};
    socklen_t size = sizeof(from);
    const ssize_t got =
        recvfrom(fd->get(), frame.data(), frame.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
    if (got <= 0) continue;
    frame.resize(static_cast<size_t>(got));
    if (see(frame, from.sll_pkttype == PACKET_OUTGOING)) return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat("what was waited for did not cross ", device));
}

}  // namespace cw::bench
