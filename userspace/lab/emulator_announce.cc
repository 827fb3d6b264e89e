// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_announce.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "spdlog/spdlog.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {
namespace {

void PutAddress(uint32_t address, bool ip6, uint8_t out[16]) {
  std::memcpy(out, kLabPrefix6, sizeof(kLabPrefix6));
  if (!ip6) {
    std::memset(out, 0, 10);
    out[10] = out[11] = 0xff;
  }
  for (int i = 0; i < 4; ++i) out[12 + i] = static_cast<uint8_t>(address >> (24 - 8 * i));
}

bool Send(int fd, const cw_inproc_register_qp& message) {
  return send(fd, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(message));
}

}  // namespace

cw_inproc_register_qp MakeRegisterQp(const QpAnnouncement& qp, cw_inproc_type type) {
  cw_inproc_register_qp m{};
  m.magic = CW_INPROC_MAGIC;
  m.version = CW_INPROC_VERSION;
  m.type = static_cast<uint16_t>(type);
  m.lqpn = qp.lqpn;
  m.rqpn = qp.rqpn;
  PutAddress(qp.local_address, qp.ip6, m.laddr);
  PutAddress(qp.remote_address, qp.ip6, m.raddr);
  m.pid = static_cast<uint32_t>(getpid());
  m.udp_sport = qp.source_port;
  m.path_mtu = qp.path_mtu;
  std::strncpy(m.comm, "cwlab", sizeof(m.comm) - 1);
  std::strncpy(m.label, qp.label.c_str(), sizeof(m.label) - 1);
  return m;
}

Announcer::Announcer(std::vector<std::string> socket_paths) {
  for (std::string& path : socket_paths) hosts_.push_back({std::move(path), -1, 0, {}});
}

Announcer::~Announcer() { Stop(); }

void Announcer::Add(int host, const QpAnnouncement& qp) {
  absl::MutexLock lock(&mutex_);
  hosts_.at(static_cast<size_t>(host)).qps.push_back(qp);
  changed_ = true;
}

void Announcer::Remove(int host, uint32_t lqpn) {
  absl::MutexLock lock(&mutex_);
  Host& h = hosts_.at(static_cast<size_t>(host));
  auto it = std::find_if(h.qps.begin(), h.qps.end(), [&](const QpAnnouncement& qp) { return qp.lqpn == lqpn; });
  if (it == h.qps.end()) return;
  const bool heard = static_cast<size_t>(it - h.qps.begin()) < h.sent;
  if (heard && h.fd >= 0) {
    if (!Send(h.fd, MakeRegisterQp(*it, CW_INPROC_UNREGISTER_QP))) Close(h);
    if (h.sent > 0) --h.sent;
  }
  h.qps.erase(it);
}

void Announcer::Start() {
  if (thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = false;
  }
  thread_ = std::thread([this] { Loop(); });
}

void Announcer::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  for (Host& host : hosts_) Close(host);
}

int Announcer::connected() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.fd >= 0; }));
}

void Announcer::Loop() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    changed_ = false;
    for (Host& host : hosts_) Serve(host);
    auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return changed_ || stopping_; };
    mutex_.AwaitWithTimeout(absl::Condition(&woken), absl::Seconds(1));
  }
}

void Announcer::Serve(Host& host) {
  if (host.path.empty() || host.qps.empty()) return;
  if (host.fd >= 0) {
    char nothing;  // the agent never writes: what can be read is the end of the connection
    if (recv(host.fd, &nothing, 1, MSG_DONTWAIT) == 0) Close(host);
  }
  if (host.fd < 0 && !Connect(host)) return;
  for (; host.sent < host.qps.size(); ++host.sent) {
    if (Send(host.fd, MakeRegisterQp(host.qps[host.sent], CW_INPROC_REGISTER_QP))) continue;
    if (errno != EAGAIN) Close(host);  // a full socket is tried again, a broken one is opened anew
    return;
  }
}

bool Announcer::Connect(Host& host) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (host.path.size() >= sizeof(at.sun_path)) {
    spdlog::error("emulator: agent socket path too long: {}", host.path);
    return false;
  }
  std::memcpy(at.sun_path, host.path.c_str(), host.path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  if (connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) {
    close(fd);
    return false;
  }
  host.fd = fd;
  host.sent = 0;
  return true;
}

void Announcer::Close(Host& host) {
  if (host.fd >= 0) close(host.fd);
  host.fd = -1;
  host.sent = 0;
}

}  // namespace cw::lab
