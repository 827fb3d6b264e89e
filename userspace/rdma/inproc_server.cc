// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/inproc_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_format.h"

namespace cw::rdma {
namespace {

constexpr int kMessagesPerPoll = 512;
constexpr int kAcceptsPerPoll = 128;
constexpr int64_t kRestNs = 100'000'000;  // when no descriptor is left for another connection

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
  Sockets sockets;
  sockets.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockets.epoll = epoll_create1(EPOLL_CLOEXEC);
  sockets.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  sockets.reserve = fcntl(sockets.epoll, F_DUPFD_CLOEXEC, 0);
  // Made first, so that it closes what there is, and knows whose socket file it is.
  auto server = std::unique_ptr<InprocServer>(new InprocServer(path, sockets, std::move(handler), limits));
  if (sockets.listener < 0 || sockets.reserve < 0 || sockets.timer < 0) return absl::ErrnoToStatus(errno, "socket");
  (void)RefuseDescriptors(sockets.listener);
  unlink(path.c_str());
  if (bind(sockets.listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0 ||
      chmod(path.c_str(), 0666) < 0 || listen(sockets.listener, 128) < 0)
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot listen on %s", path));
  for (const int fd : {sockets.listener, sockets.timer}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(sockets.epoll, EPOLL_CTL_ADD, fd, &event) < 0) return absl::ErrnoToStatus(errno, "epoll");
  }
  return server;
}

InprocServer::InprocServer(std::string path, const Sockets& sockets, Handler handler, const QuotaLimits& limits)
    : path_(std::move(path)), sockets_(sockets), handler_(std::move(handler)), quota_(limits) {}

InprocServer::~InprocServer() {
  unlink(path_.c_str());
  for (const auto& connection : connections_) discards_.End(connection->fd);
  // What is in the backlog may hold descriptors, too.
  if (sockets_.listener >= 0) {
    shutdown(sockets_.listener, SHUT_RD);
    for (int fd; (fd = accept4(sockets_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) Refuse(fd);
  }
  for (const int fd : {sockets_.epoll, sockets_.listener, sockets_.timer, sockets_.reserve}) {
    if (fd >= 0) close(fd);
  }
}

void InprocServer::Wake() {
  const itimerspec in{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kRestNs}};
  (void)timerfd_settime(sockets_.timer, 0, &in, nullptr);
}

// Under level-triggered epoll a connection that cannot be taken would wake the loop again at once.
void InprocServer::Rest() {
  epoll_event nothing{.events = 0, .data = {.fd = sockets_.listener}};
  (void)epoll_ctl(sockets_.epoll, EPOLL_CTL_MOD, sockets_.listener, &nothing);
  ++counts_.rests;
  Wake();
}

void InprocServer::OnTimer() {
  uint64_t times;
  (void)!read(sockets_.timer, &times, sizeof(times));
  discards_.Work();
  if (sockets_.reserve < 0) sockets_.reserve = fcntl(sockets_.epoll, F_DUPFD_CLOEXEC, 0);
  if (discards_.busy()) Wake();
  if (discards_.full() || sockets_.reserve < 0) return Wake();
  epoll_event event{.events = EPOLLIN, .data = {.fd = sockets_.listener}};
  (void)epoll_ctl(sockets_.epoll, EPOLL_CTL_MOD, sockets_.listener, &event);
}

void InprocServer::Refuse(int fd) {
  (void)TellMessagesFromTheEnd(fd);
  discards_.End(fd);
  if (discards_.busy()) Wake();
}

// The descriptor kept in reserve takes the first one that waits: it is told at once, and not left to its patience.
void InprocServer::RefuseOne() {
  close(sockets_.reserve);
  const int fd = accept4(sockets_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) Refuse(fd);
  sockets_.reserve = fcntl(sockets_.epoll, F_DUPFD_CLOEXEC, 0);
}

// Not all that wait: who connects again and again would keep the loop here.
void InprocServer::Accept() {
  for (int i = 0; i < kAcceptsPerPoll && !discards_.full(); ++i) {
    const int fd = accept4(sockets_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Admit(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      if (sockets_.reserve >= 0) RefuseOne();
      return Rest();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
  if (discards_.full()) Rest();
}

void InprocServer::Admit(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0 || !TellMessagesFromTheEnd(fd))
    return Refuse(fd);
  const Requester peer{.pid = static_cast<uint32_t>(credentials.pid), .uid = static_cast<uint32_t>(credentials.uid)};
  if (!quota_.Connected(peer.pid, peer.uid, MonotonicNs())) {
    ++counts_.over_quota;
    return Refuse(fd);
  }
  if (epoll_ctl(sockets_.epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
    quota_.Disconnected(peer.pid);
    return Refuse(fd);
  }
  connections_.push_back(std::make_unique<Connection>(Connection{fd, peer, {}, next_connection_++}));
}

void InprocServer::Message(Connection& connection, const char* data, size_t size) {
  cw_inproc_head head{};
  std::memcpy(&head, data, std::min(size, sizeof(head)));
  const bool ours = head.magic == CW_INPROC_MAGIC && head.version == CW_INPROC_VERSION;
  if (ours && head.type >= CW_INPROC_PROFILER && handler_.profiler) {
    connection.profiler = true;
    handler_.profiler(connection.AsPeer(), absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data), size));
    return;
  }
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

absl::Status InprocServer::Give(uint64_t connection, absl::Span<const uint8_t> message, int fd) {
  const auto to = std::find_if(connections_.begin(), connections_.end(),
                               [connection](const auto& each) { return each->id == connection; });
  if (to == connections_.end()) return absl::NotFoundError("the connection is gone");
  if (fd < 0) {
    const bool sent = send((*to)->fd, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    return sent ? absl::OkStatus() : absl::ErrnoToStatus(errno, "answer a profiler");
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fd))] = {};
  iovec bytes{const_cast<uint8_t*>(message.data()), message.size()};
  msghdr packet{.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  if (sendmsg((*to)->fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(message.size()))
    return absl::ErrnoToStatus(errno, "send a descriptor");
  return absl::OkStatus();
}

InprocServer::After InprocServer::Receive(Connection& connection) {
  char buffer[512];
  const int64_t now_ns = MonotonicNs();
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    switch (Peek(connection.fd)) {
      case Next::kNothing:
        return After::kGoesOn;
      case Next::kMessage:
        break;
      case Next::kEnd:
        return connection.said ? After::kEnds : After::kStrange;
      case Next::kDescriptors:
        ++counts_.descriptors;
        return After::kStrange;
      case Next::kBroken:
        return After::kEnds;
    }
    const ssize_t size = recv(connection.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0) return After::kEnds;
    connection.said = true;
    if (!quota_.TakeMessage(connection.peer.pid, now_ns)) {
      ++counts_.over_quota;
    } else {
      Message(connection, buffer, static_cast<size_t>(size));
    }
  }
  return After::kGoesOn;
}

void InprocServer::Close(size_t index) {
  std::unique_ptr<Connection> connection = std::move(connections_[index]);
  connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(index));
  (void)epoll_ctl(sockets_.epoll, EPOLL_CTL_DEL, connection->fd, nullptr);  // others may hold the socket, too
  discards_.End(connection->fd);
  if (discards_.busy()) Wake();
  for (const auto& [key, qp] : connection->qps) {
    quota_.ReturnQp(connection->peer.pid);
    handler_.unregistered(qp);
  }
  quota_.Disconnected(connection->peer.pid);
  if (connection->profiler && handler_.closed) handler_.closed(connection->AsPeer());
}

void InprocServer::Poll() {
  epoll_event events[64];
  const int count = epoll_wait(sockets_.epoll, events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == sockets_.timer) OnTimer();
    if (events[i].data.fd == sockets_.listener) Accept();
    for (size_t c = 0; c < connections_.size(); ++c) {
      if (connections_[c]->fd != events[i].data.fd) continue;
      const After after = Receive(*connections_[c]);
      const Peer peer = connections_[c]->AsPeer();
      if (after != After::kGoesOn) Close(c);
      if (after == After::kStrange && handler_.strange) handler_.strange(peer);
      break;
    }
  }
}

}  // namespace cw::rdma
