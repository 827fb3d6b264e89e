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
#include <ctime>

#include "absl/strings/str_format.h"

namespace cw::rdma {
namespace {

constexpr size_t kMaxConnections = 4096;
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

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The first descriptor that comes with the message; all others are closed. A message without bytes is the end.
ssize_t ReceiveWithFd(int socket, char* buffer, size_t size, int* fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  iovec bytes{buffer, size};
  msghdr message{.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int each;
      std::memcpy(&each, CMSG_DATA(head) + i * sizeof(int), sizeof(each));
      if (*fd < 0 && received > 0) {
        *fd = each;
      } else {
        close(each);
      }
    }
  }
  return received;
}

// A whole message of this type and size, or nothing.
template <typename T>
bool Take(const char* data, size_t size, T* out) {
  if (size != sizeof(T)) return false;
  std::memcpy(out, data, size);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<InprocServer>> InprocServer::Listen(const std::string& path, Handler handler,
                                                                   const QuotaLimits& limits) {
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
  return std::unique_ptr<InprocServer>(new InprocServer(path, fd, epoll, std::move(handler), limits));
}

InprocServer::InprocServer(std::string path, int listen_fd, int epoll_fd, Handler handler, const QuotaLimits& limits)
    : path_(std::move(path)),
      listen_fd_(listen_fd),
      epoll_fd_(epoll_fd),
      handler_(std::move(handler)),
      quota_(limits) {}

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
    const Requester peer{.pid = static_cast<uint32_t>(credentials.pid), .uid = static_cast<uint32_t>(credentials.uid)};
    if (!quota_.Connected(peer.pid, peer.uid, MonotonicNs())) {
      ++counts_.over_quota;
      close(fd);
      continue;
    }
    connections_.push_back(std::make_unique<Connection>(Connection{fd, peer, {}, next_connection_++}));
  }
}

void InprocServer::Message(Connection& connection, const char* data, size_t size, int fd) {
  cw_inproc_head head{};
  std::memcpy(&head, data, std::min(size, sizeof(head)));
  const bool ours = head.magic == CW_INPROC_MAGIC && head.version == CW_INPROC_VERSION;
  if (ours && head.type >= CW_INPROC_PROFILER && handler_.profiler) {
    connection.profiler = true;
    handler_.profiler(connection.AsPeer(), absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data), size), fd);
    return;
  }
  if (fd >= 0) close(fd);
  cw_inproc_register_qp qp;
  cw_inproc_place_qp place;
  cw_inproc_qp_sums sums;
  cw_inproc_qp_can can;
  cw_inproc_qp_moved moved;
  if (!ours) {
    ++counts_.malformed;
  } else if (head.type == CW_INPROC_REGISTER_QP && Take(data, size, &qp)) {
    OnRegister(connection, qp);
  } else if (head.type == CW_INPROC_UNREGISTER_QP && Take(data, size, &qp)) {
    OnUnregister(connection, qp);
  } else if (head.type == CW_INPROC_PLACE_QP && Take(data, size, &place)) {
    OnPlace(connection, place);
  } else if (head.type == CW_INPROC_QP_SUMS && Take(data, size, &sums)) {
    OnSums(connection, sums);
  } else if (head.type == CW_INPROC_QP_CAN && Take(data, size, &can)) {
    OnCan(connection, can);
  } else if (head.type == CW_INPROC_QP_MOVED && Take(data, size, &moved)) {
    OnMoved(connection, moved);
  } else {
    ++counts_.malformed;
  }
}

QpInfo* InprocServer::Remember(Connection& connection, QpInfo info) {
  info.pid = connection.peer.pid;  // in a container the process knows itself by another number
  auto known = connection.qps.find({info.laddr, info.lqpn});
  if (known == connection.qps.end()) {
    if (!quota_.TakeQp(connection.peer.pid)) {
      ++counts_.over_quota;
      return nullptr;
    }
    known = connection.qps.emplace(QpKey{info.laddr, info.lqpn}, QpInfo{}).first;
  }
  info.owner = known->second.owner;
  known->second = std::move(info);
  return &known->second;
}

void InprocServer::OnRegister(Connection& connection, const cw_inproc_register_qp& message) {
  if (const QpInfo* qp = Remember(connection, ToInfo(message)); qp != nullptr) handler_.registered(*qp);
}

void InprocServer::OnUnregister(Connection& connection, const cw_inproc_register_qp& message) {
  const auto known = connection.qps.find({Addr::FromBytes(message.laddr), message.lqpn & 0xffffff});
  if (known == connection.qps.end()) return;  // a process can only affect its own queue pairs
  const QpInfo gone = std::move(known->second);
  connection.qps.erase(known);
  quota_.ReturnQp(connection.peer.pid);
  handler_.unregistered(gone);
}

void InprocServer::OnPlace(Connection& connection, const cw_inproc_place_qp& message) {
  Placement placement{.verdict = CW_INPROC_OVER_QUOTA};
  QpInfo* qp = Remember(connection, ToInfo(message.qp));
  if (qp != nullptr) {
    placement = handler_.place ? handler_.place(*qp, connection.peer) : Placement{};
    if (!qp->owner) qp->owner.emplace();
    qp->owner->asked = placement.verdict;
    // Known from now on, so that the next question counts it. The owner tells again when it did not take the label.
    if (placement.verdict == CW_INPROC_PLACED) qp->udp_sport = placement.udp_sport;
    handler_.registered(*qp);
  }
  Answer(connection, message, placement);
}

// One that this connection told of before; null: none.
QpInfo* InprocServer::Known(Connection& connection, const uint8_t laddr[16], uint32_t lqpn) {
  const auto known = connection.qps.find({Addr::FromBytes(laddr), lqpn & 0xffffff});
  if (known == connection.qps.end()) return nullptr;
  if (!known->second.owner) known->second.owner.emplace();
  return &known->second;
}

void InprocServer::OnSums(Connection& connection, const cw_inproc_qp_sums& message) {
  QpInfo* known = Known(connection, message.laddr, message.lqpn);
  if (known == nullptr) return;
  OwnerSums& owner = *known->owner;
  owner.messages = message.messages;
  owner.bytes = message.bytes;
  owner.errors = message.errors;
  owner.completion_samples = message.completion_samples;
  owner.completion_p50_ns = message.completion_p50_ns;
  owner.completion_max_ns = message.completion_max_ns;
  owner.told_ns = MonotonicNs();
  handler_.registered(*known);
}

void InprocServer::OnCan(Connection& connection, const cw_inproc_qp_can& message) {
  QpInfo* known = Known(connection, message.laddr, message.lqpn);
  if (known == nullptr) return;
  known->owner->can = message.can;
  known->owner->told_can = true;
  known->owner->refused_errno = message.refused;
  known->owner->lag_active = message.lag_active;
  known->owner->lag_wanted = message.lag_wanted;
  handler_.registered(*known);
}

void InprocServer::OnMoved(Connection& connection, const cw_inproc_qp_moved& message) {
  QpInfo* known = Known(connection, message.laddr, message.lqpn);
  if (known == nullptr) return;
  known->udp_sport = message.udp_sport;
  known->owner->lag_active = message.lag_active;
  known->owner->lag_wanted = message.lag_wanted;
  handler_.registered(*known);
  if (handler_.moved) handler_.moved(*known, {.request = message.request, .error = static_cast<int>(message.error)});
}

const InprocServer::Connection* InprocServer::OwnerOf(const MoveOrder& order) const {
  for (const auto& connection : connections_) {
    const auto known = connection->qps.find({order.laddr, order.lqpn});
    if (known == connection->qps.end() || known->second.pid != order.pid || !known->second.owner) continue;
    if ((known->second.owner->can & (CW_INPROC_CAN_MOVE_PORT | CW_INPROC_CAN_MOVE_LAG)) != 0) return connection.get();
  }
  return nullptr;
}

std::vector<uint32_t> InprocServer::Move(absl::Span<const MoveOrder> orders) {
  std::vector<uint32_t> unsent;
  absl::flat_hash_map<const Connection*, std::vector<const MoveOrder*>> by_owner;
  for (const MoveOrder& order : orders) {
    if (const Connection* owner = OwnerOf(order); owner != nullptr) {
      by_owner[owner].push_back(&order);
    } else {
      unsent.push_back(order.request);
    }
  }
  for (const auto& [owner, theirs] : by_owner) {
    for (size_t at = 0; at < theirs.size(); at += CW_INPROC_MOST_MOVES) {
      cw_inproc_move_qps message{.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_MOVE_QPS};
      const size_t count = std::min(theirs.size() - at, size_t{CW_INPROC_MOST_MOVES});
      message.count = static_cast<uint32_t>(count);
      for (size_t i = 0; i < count; ++i) {
        const MoveOrder& order = *theirs[at + i];
        std::copy(order.laddr.bytes.begin(), order.laddr.bytes.end(), message.move[i].laddr);
        message.move[i].lqpn = order.lqpn;
        message.move[i].request = order.request;
        message.move[i].udp_sport = order.udp_sport;
        message.move[i].lag_port = order.lag_port;
      }
      if (send(owner->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) ==
          static_cast<ssize_t>(sizeof(message)))
        continue;
      for (size_t i = 0; i < count; ++i) unsent.push_back(theirs[at + i]->request);
    }
  }
  return unsent;
}

void InprocServer::Answer(const Connection& connection, const cw_inproc_place_qp& asked, const Placement& placement) {
  const cw_inproc_placement reply = {.magic = CW_INPROC_MAGIC,
                                     .version = CW_INPROC_VERSION,
                                     .type = CW_INPROC_PLACEMENT,
                                     .request = asked.request,
                                     .flow_label = placement.flow_label,
                                     .udp_sport = placement.udp_sport,
                                     .slot = placement.slot,
                                     .verdict = static_cast<uint8_t>(placement.verdict),
                                     .lqpn = asked.qp.lqpn};
  // One that does not read its answers gets none: it waits for milliseconds only.
  (void)send(connection.fd, &reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool InprocServer::Receive(Connection& connection) {
  char buffer[512];
  const int64_t now_ns = MonotonicNs();
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    int fd = -1;
    const ssize_t size = ReceiveWithFd(connection.fd, buffer, sizeof(buffer), &fd);
    if (size > 0 && !quota_.TakeMessage(connection.peer.pid, now_ns)) {
      if (fd >= 0) close(fd);
      ++counts_.over_quota;
    } else if (size > 0) {
      Message(connection, buffer, static_cast<size_t>(size), fd);
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
  for (const auto& [key, qp] : connection->qps) {
    quota_.ReturnQp(connection->peer.pid);
    handler_.unregistered(qp);
  }
  quota_.Disconnected(connection->peer.pid);
  if (connection->profiler && handler_.closed) handler_.closed(connection->AsPeer());
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
