// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_worker.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "spdlog/spdlog.h"

namespace cw::lab {
namespace {

constexpr size_t kReceiveBudget = 256;           // frames per port and pass
constexpr int64_t kLongestSleepNs = 10'000'000;  // jobs start and rounds open without a wake-up
constexpr double kLineBurstPackets = 4;
constexpr double kWireOverhead = 24 + 14 + 46;  // preamble, FCS and gap; Ethernet; RoCE headers and ICRC

timespec ToTimespec(int64_t ns) { return {ns / 1'000'000'000, ns % 1'000'000'000}; }

uint64_t RemoteKey(uint32_t address, uint32_t qpn) { return uint64_t{address} << 32 | qpn; }

}  // namespace

void Worker::Port::OnPacket(const RocePacket& packet) {
  auto it = by_qpn.find(packet.dest_qpn);
  if (it != by_qpn.end()) it->second->Receive(packet, now_ns);
}

void Worker::Port::OnKernelStamp(const RocePacket& packet, bool sent, int64_t realtime_ns) {
  const auto& index = sent ? by_remote : by_qpn;
  const auto it = index.find(sent ? RemoteKey(packet.destination, packet.dest_qpn) : packet.dest_qpn);
  if (it != index.end()) it->second->AddStamp(packet, sent, realtime_ns);
}

bool Worker::Port::SendOne(Endpoint* endpoint, int64_t now) {
  RocePacket packet;
  if (!endpoint->PollTransmit(now, &packet)) return false;
  port->Queue(packet);
  if (line_bps > 0) {
    auto wire_ns = [&](double payload) { return static_cast<int64_t>(8e9 * (payload + kWireOverhead) / line_bps); };
    const int64_t slack = static_cast<int64_t>(kLineBurstPackets) * wire_ns(4096);
    next_tx_ns = std::max(next_tx_ns, now - slack) + wire_ns(packet.payload_bytes);
  }
  return true;
}

// Queue pairs take turns, one packet each, until the line or the send slots are full or nobody has a packet.
void Worker::Port::Transmit(int64_t now) {
  bool progress = true;
  while (progress && !endpoints.empty()) {
    progress = false;
    for (size_t i = 0; i < endpoints.size(); ++i) {
      if (!port->HasRoom()) port->Flush();
      if (!port->HasRoom() || now < next_tx_ns) {
        port->Flush();
        return;
      }
      if (first >= endpoints.size()) first = 0;
      progress |= SendOne(endpoints[first++], now);
    }
  }
  port->Flush();
}

int64_t Worker::Port::NextEventNs(int64_t now) const {
  int64_t at = INT64_MAX;
  for (const Endpoint* e : endpoints) at = std::min(at, e->NextEventNs(now));
  return std::max(at, next_tx_ns);
}

Worker::Worker(const WorkerConfig& config) : config_(config) {}

Worker::~Worker() {
  Stop();
  for (int fd : {epoll_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status Worker::AddPort(int host, std::unique_ptr<HostPort> port, double line_bps) {
  if (epoll_fd_ < 0) {
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_fd_ < 0 || wake_fd_ < 0) return absl::ErrnoToStatus(errno, "epoll or eventfd");
    epoll_event wake{EPOLLIN, {.fd = wake_fd_}};
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &wake) != 0) return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  epoll_event event{EPOLLIN, {.fd = port->receive_fd()}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, port->receive_fd(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "epoll_ctl of a packet ring");
  }
  auto p = std::make_unique<Port>();
  p->port = std::move(port);
  p->line_bps = line_bps;
  order_.push_back(p.get());
  ports_[host] = std::move(p);
  return absl::OkStatus();
}

void Worker::AddEndpoint(std::unique_ptr<Endpoint> endpoint) {
  absl::MutexLock lock(&mutex_);
  Port& port = *ports_.at(endpoint->spec().host);
  port.endpoints.push_back(endpoint.get());
  port.by_qpn[endpoint->spec().qp.qpn] = endpoint.get();
  port.by_remote[RemoteKey(endpoint->spec().remote_address, endpoint->spec().qp.remote_qpn)] = endpoint.get();
  endpoints_.push_back(std::move(endpoint));
}

absl::Status Worker::Start() {
  if (epoll_fd_ < 0 || thread_.joinable()) return absl::OkStatus();
  stopping_ = false;
  uint64_t stale;  // a wake-up that an earlier Stop left
  if (read(wake_fd_, &stale, sizeof(stale)) < 0 && errno != EAGAIN) return absl::ErrnoToStatus(errno, "eventfd");
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void Worker::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0) spdlog::warn("emulator: waking a worker: errno {}", errno);
  thread_.join();
}

void Worker::Loop() {
  prctl(PR_SET_NAME, "cwlab-emulator");
  prctl(PR_SET_TIMERSLACK, 1000);
  const sched_param param{.sched_priority = 1};
  if (config_.realtime && sched_setscheduler(0, SCHED_FIFO, &param) != 0) {
    spdlog::warn("emulator: SCHED_FIFO refused (errno {}), going on without it", errno);
  }
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int64_t began = MonotonicNs();
    Sleep(began, Pass());
  }
}

// One round over all ports; returns when the next packet or timeout is due.
int64_t Worker::Pass() {
  absl::MutexLock lock(&mutex_);
  int64_t next = INT64_MAX;
  // The packets of one pass reach a switch in the order of the ports, and the last of them is marked most: so each pass
  // begins with another port, and every other round runs backwards.
  ++passes_;
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t turn = (passes_ + i) % order_.size();
    Port* p = order_[passes_ / order_.size() % 2 == 0 ? turn : order_.size() - 1 - turn];
    p->now_ns = MonotonicNs();
    p->port->Receive(kReceiveBudget, p);
    for (Endpoint* e : p->endpoints) e->Drive(p->now_ns);
    const int64_t now = MonotonicNs();
    p->Transmit(now);
    p->port->ReadSendStamps(p);
    next = std::min(next, p->NextEventNs(now));
  }
  return next;
}

void Worker::Sleep(int64_t pass_began_ns, int64_t until_ns) {
  const timespec tick = ToTimespec(pass_began_ns + config_.tick_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &tick, nullptr) == EINTR) {
  }
  const int64_t left = std::min(until_ns - MonotonicNs(), kLongestSleepNs);
  if (left <= 0) return;
  const timespec timeout = ToTimespec(left);
  epoll_event event;
  if (epoll_pwait2(epoll_fd_, &event, 1, &timeout, nullptr) < 0 && errno != EINTR) {
    spdlog::error("emulator: epoll_pwait2: errno {}", errno);
  }
}

}  // namespace cw::lab
