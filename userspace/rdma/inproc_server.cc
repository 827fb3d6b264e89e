// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/inproc_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "userspace/inproc/cw_inproc.h"

namespace cw::rdma {
namespace {

constexpr size_t kMaxConnections = 4096;
constexpr size_t kMaxQpsPerConnection = 16384;
constexpr int kMessagesPerPoll = 512;

std::string BoundedString(const char* text, size_t size) { return std::string(text, strnlen(text, size)); }

QpInfo ToInfo(const cw_inproc_register_qp& message) {
  return {.lqpn = message.lqpn & 0xffffff,
          .rqpn = message.rqpn & 0xffffff,
          .laddr = Addr::FromBytes(message.laddr),
          .raddr = Addr::FromBytes(message.raddr),
          .pid = message.pid,
          .udp_sport = message.udp_sport,
          .path_mtu = message.path_mtu,
          .comm = BoundedString(message.comm, sizeof(message.comm)),
          .label = BoundedString(message.label, sizeof(message.label)),
          .source = "inproc"};
}

bool SameQp(const QpInfo& a, const QpInfo& b) { return a.lqpn == b.lqpn && a.laddr == b.laddr; }

}  // namespace

absl::StatusOr<std::unique_ptr<InprocServer>> InprocServer::Listen(const std::string& path, Handler handler) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return absl::InvalidArgumentError("socket path too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0 || chmod(path.c_str(), 0666) < 0 ||
      listen(fd, 128) < 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, absl::StrFormat("cannot listen on %s", path));
    close(fd);
    return status;
  }
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "epoll");
    close(fd);
    if (epoll >= 0) close(epoll);
    return status;
  }
  return std::unique_ptr<InprocServer>(new InprocServer(path, fd, epoll, std::move(handler)));
}

InprocServer::InprocServer(std::string path, int listen_fd, int epoll_fd, Handler handler)
    : path_(std::move(path)), listen_fd_(listen_fd), epoll_fd_(epoll_fd), handler_(std::move(handler)) {}

InprocServer::~InprocServer() {
  for (const auto& connection : connections_) close(connection->fd);
  close(epoll_fd_);
  close(listen_fd_);
  unlink(path_.c_str());
}

void InprocServer::Accept() {
  while (true) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (connections_.size() >= kMaxConnections || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0 ||
        epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) < 0) {
      close(fd);
      continue;
    }
    connections_.push_back(std::make_unique<Connection>(
        Connection{fd, static_cast<uint32_t>(credentials.pid), static_cast<uint32_t>(credentials.uid), {}}));
  }
}

void InprocServer::Message(Connection& connection, const char* data, size_t size) {
  cw_inproc_register_qp message;
  if (size != sizeof(message)) {
    ++malformed_;
    return;
  }
  std::memcpy(&message, data, sizeof(message));
  if (message.magic != CW_INPROC_MAGIC || message.version != CW_INPROC_VERSION) {
    ++malformed_;
    return;
  }
  QpInfo info = ToInfo(message);
  if (connection.uid != 0 || info.pid == 0) info.pid = connection.pid;
  auto known =
      std::find_if(connection.qps.begin(), connection.qps.end(), [&](const QpInfo& qp) { return SameQp(qp, info); });
  if (message.type == CW_INPROC_REGISTER_QP) {
    if (known != connection.qps.end()) {
      *known = info;
    } else if (connection.qps.size() < kMaxQpsPerConnection) {
      connection.qps.push_back(info);
    } else {
      ++malformed_;
      return;
    }
    handler_.registered(info);
  } else if (message.type == CW_INPROC_UNREGISTER_QP) {
    if (known == connection.qps.end()) return;  // a process can only affect its own queue pairs
    const QpInfo gone = *known;
    connection.qps.erase(known);
    handler_.unregistered(gone);
  } else {
    ++malformed_;
  }
}

bool InprocServer::Receive(Connection& connection) {
  char buffer[512];
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    const ssize_t size = recv(connection.fd, buffer, sizeof(buffer), 0);
    if (size > 0) {
      Message(connection, buffer, static_cast<size_t>(size));
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else {
      return true;
    }
  }
  return true;
}

void InprocServer::Close(size_t index) {
  std::unique_ptr<Connection> connection = std::move(connections_[index]);
  connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(index));
  close(connection->fd);
  for (const QpInfo& qp : connection->qps) handler_.unregistered(qp);
}

void InprocServer::Poll() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_fd_, events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == listen_fd_) {
      Accept();
      continue;
    }
    for (size_t c = 0; c < connections_.size(); ++c) {
      if (connections_[c]->fd != events[i].data.fd) continue;
      if (!Receive(*connections_[c])) Close(c);
      break;
    }
  }
}

}  // namespace cw::rdma
