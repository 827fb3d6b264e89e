// SPDX-License-Identifier: Apache-2.0
#include "userspace/doors/door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <utility>

namespace cw::doors {

using maps::UniqueFd;
using Steady = std::chrono::steady_clock;

namespace {

constexpr int kAcceptsPerTurn = 64, kEvents = 64;
constexpr int kRestMs = 100;  // when no descriptor is left

enum Count { kAdmitted, kScreened, kSilent, kTooMany, kFull, kNoDescriptors, kCounts };

}  // namespace

std::string AddressOf(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof(text));
  if (from.ss_family != AF_INET6) return text;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &v6, text, sizeof(text));
  }
  return text;
}

struct Door::Loop {
  struct Waiting {
    UniqueFd fd;
    sockaddr_storage from;
    Steady::time_point since;
  };

  explicit Loop(DoorSpec given) : spec(std::move(given)), guests(spec.limits) {}

  DoorSpec spec;
  std::vector<Listener> listeners;
  UniqueFd epoll, wake, reserve;
  Guests guests;
  std::list<Waiting> waiting;  // the oldest first
  std::map<int, std::list<Waiting>::iterator> by_fd;
  std::atomic<uint64_t> counts[kCounts]{};
  std::mutex mutex;  // of the next
  std::condition_variable turned;
  uint64_t asked = 0, answered = 0;
  bool ending = false;

  bool Watch(int fd, uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  void Run() {
    while (true) {
      epoll_event events[kEvents];
      const int ready = epoll_wait(epoll.get(), events, kEvents, WaitMs());
      if (ready < 0 && errno != EINTR) return;
      for (int i = 0; i < ready; ++i) {
        const int fd = events[i].data.fd;
        if (fd == wake.get() && !Woken()) return;
        const auto guest = by_fd.find(fd);
        if (guest != by_fd.end()) {
          Spoke(guest->second);
        } else if (IsListener(fd)) {
          Accept(fd);
        }
      }
      SendSilentAway();
    }
  }

  // False: it ends.
  bool Woken() {
    uint64_t times = 0;
    (void)!read(wake.get(), &times, sizeof(times));
    const std::lock_guard lock(mutex);
    answered = asked;
    turned.notify_all();
    return !ending;
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake.get(), &one, sizeof(one));
  }

  int WaitMs() const {
    if (waiting.empty()) return -1;
    const absl::Duration left = spec.silent - absl::FromChrono(Steady::now() - waiting.front().since);
    return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, 60'000));
  }

  bool IsListener(int fd) const {
    return std::any_of(listeners.begin(), listeners.end(), [fd](const Listener& each) { return each.fd() == fd; });
  }

  void Accept(int listener) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      sockaddr_storage from{};
      socklen_t size = sizeof(from);
      UniqueFd fd(accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.ok()) {
        Take(std::move(fd), from);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        return SendOneAway(listener);
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }

  // It hears an end rather than nothing.
  void SendOneAway(int listener) {
    ++counts[kNoDescriptors];
    const bool had_reserve = reserve.ok();
    reserve.reset();
    if (had_reserve) UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    reserve = UniqueFd(fcntl(epoll.get(), F_DUPFD_CLOEXEC, 0));
    if (!had_reserve || !reserve.ok()) (void)poll(nullptr, 0, kRestMs);
  }

  void Take(UniqueFd fd, const sockaddr_storage& from) {
    const std::optional<std::string> guest = spec.screen ? spec.screen(fd.get(), from) : AddressOf(from);
    if (!guest) {
      ++counts[kScreened];
      return;
    }
    Guests::Answer answer = guests.Admit(fd.get(), *guest);
    if (answer == Guests::Answer::kTooManyInAll && !waiting.empty()) {
      SendAway(waiting.begin());
      answer = guests.Admit(fd.get(), *guest);
    }
    if (answer != Guests::Answer::kIn) {
      ++counts[answer == Guests::Answer::kTooManyOfIts ? kTooMany : kFull];
      return;
    }
    if (!Watch(fd.get(), EPOLLIN)) return;
    const int number = fd.get();
    waiting.push_back({std::move(fd), from, Steady::now()});
    by_fd[number] = std::prev(waiting.end());
  }

  void Spoke(std::list<Waiting>::iterator guest) {
    UniqueFd fd = std::move(guest->fd);
    const sockaddr_storage from = guest->from;
    by_fd.erase(fd.get());
    waiting.erase(guest);
    (void)epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
    char first = 0;
    if (recv(fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return;  // it went
    ++counts[kAdmitted];
    spec.admit(std::move(fd), from);
  }

  void SendAway(std::list<Waiting>::iterator guest) {
    ++counts[kSilent];
    by_fd.erase(guest->fd.get());
    waiting.erase(guest);  // closed, and watched no more by that
  }

  void SendSilentAway() {
    const Steady::time_point now = Steady::now();
    while (!waiting.empty() && absl::FromChrono(now - waiting.front().since) >= spec.silent) SendAway(waiting.begin());
  }
};

absl::StatusOr<std::unique_ptr<Door>> Door::Open(std::vector<Listener> listeners, DoorSpec spec) {
  auto loop = std::make_unique<Loop>(std::move(spec));
  loop->listeners = std::move(listeners);
  loop->epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  loop->wake = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  loop->reserve = UniqueFd(fcntl(loop->epoll.get(), F_DUPFD_CLOEXEC, 0));
  bool ok = loop->wake.ok() && loop->reserve.ok() && loop->Watch(loop->wake.get(), EPOLLIN);
  for (const Listener& listener : loop->listeners) ok = ok && loop->Watch(listener.fd(), EPOLLIN);
  if (!ok) return absl::ErrnoToStatus(errno, "cannot watch the sockets");
  return std::unique_ptr<Door>(new Door(std::move(loop)));
}

Door::Door(std::unique_ptr<Loop> loop) : loop_(std::move(loop)), thread_([this] { loop_->Run(); }) {}

Door::~Door() {
  {
    const std::lock_guard lock(loop_->mutex);
    loop_->ending = true;
  }
  loop_->Wake();
  thread_.join();
}

bool Door::Answers(absl::Duration patience) {
  std::unique_lock lock(loop_->mutex);
  const uint64_t mine = ++loop_->asked;
  loop_->Wake();
  return loop_->turned.wait_for(lock, absl::ToChronoNanoseconds(patience), [&] { return loop_->answered >= mine; });
}

DoorCounts Door::counts() const {
  const auto& c = loop_->counts;
  return {.admitted = c[kAdmitted],
          .screened = c[kScreened],
          .silent = c[kSilent],
          .too_many = c[kTooMany],
          .full = c[kFull],
          .no_descriptors = c[kNoDescriptors]};
}

}  // namespace cw::doors
