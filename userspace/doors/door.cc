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
constexpr int kTurnMs = 10;   // while somebody waits for his turn
constexpr absl::Duration kLongestWait = absl::Seconds(20);

uint16_t PortOf(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(from).sin_port);
  return from.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(from).sin6_port) : 0;
}

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

std::string PeerOf(const std::string& address, uint16_t port) {
  return address.empty() ? "" : address + ":" + std::to_string(port);
}

std::string PeerOf(const sockaddr_storage& from) { return PeerOf(AddressOf(from), PortOf(from)); }

struct Door::Loop {
  struct Waiting {
    UniqueFd fd;
    sockaddr_storage from;
    std::string guest;
    Steady::time_point since;
    bool spoke = false;
  };
  using Line = std::list<Waiting>;  // the oldest first

  explicit Loop(DoorSpec given) : spec(std::move(given)), guests(spec.limits), newcomers(spec.newcomers) {}

  DoorSpec spec;
  std::vector<Listener> listeners;
  UniqueFd epoll, wake, reserve;
  Guests guests;
  Newcomers newcomers;
  Line silent;
  struct Guest {
    Line line;
    std::list<std::string>::iterator turn;
  };
  std::map<std::string, Guest> ready;   // who spoke, by guest
  std::list<std::string> turns;         // guests of `ready`, the next first
  std::map<int, Line::iterator> by_fd;  // of both
  std::atomic<bool> waits = false;      // somebody is ready
  Steady::time_point looked_for_late{};
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
      const int many = epoll_wait(epoll.get(), events, kEvents, WaitMs());
      if (many < 0 && errno != EINTR) return;
      for (int i = 0; i < many; ++i) {
        const int fd = events[i].data.fd;
        if (fd == wake.get() && !Woken()) return;
        const auto guest = by_fd.find(fd);
        if (guest != by_fd.end()) {
          Spoke(guest->second);
        } else if (IsListener(fd)) {
          Accept(fd);
        }
      }
      HandOn();
      SendLateAway();
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
    if (!turns.empty()) return kTurnMs;
    if (silent.empty()) return -1;
    const absl::Duration left = spec.silent - absl::FromChrono(Steady::now() - silent.front().since);
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
    newcomers.Forget(fd.get());
    Guests::Answer answer = guests.Admit(fd.get(), *guest);
    for (const bool of_its : {true, false}) {
      const auto wanted = of_its ? Guests::Answer::kTooManyOfIts : Guests::Answer::kTooManyInAll;
      if (answer == wanted && (of_its ? MakeSpaceOf(*guest) : MakeSpace())) answer = guests.Admit(fd.get(), *guest);
    }
    if (answer != Guests::Answer::kIn) {
      ++counts[answer == Guests::Answer::kTooManyOfIts ? kTooMany : kFull];
      return;
    }
    if (!Watch(fd.get(), EPOLLIN)) return;
    newcomers.Came(*guest);
    const int number = fd.get();
    silent.push_back({std::move(fd), from, *guest, Steady::now()});
    by_fd[number] = std::prev(silent.end());
  }

  bool MakeSpaceOf(const std::string& guest) {
    for (const int fd : guests.Of(guest)) {
      const auto inside = by_fd.find(fd);
      if (inside != by_fd.end()) {
        SendAway(inside->second);
        return true;
      }
      if (newcomers.End(fd)) {
        guests.Leave(fd, guest);
        return true;
      }
    }
    return false;
  }

  // The oldest of whoever has most, so that many of one make no space for themselves; where all have one, the oldest.
  bool MakeSpace() {
    if (const auto [largest, count] = newcomers.Largest(); count > 1 && MakeSpaceOf(largest)) return true;
    if (const auto ended = newcomers.EndOldest()) {
      guests.Leave(ended->first, ended->second);
      return true;
    }
    if (turns.empty() && silent.empty()) return false;
    SendAway(turns.empty() ? silent.begin() : ready[turns.front()].line.begin());
    return true;
  }

  void Spoke(Line::iterator guest) {
    (void)epoll_ctl(epoll.get(), EPOLL_CTL_DEL, guest->fd.get(), nullptr);
    guest->spoke = true;
    Guest& its = ready[guest->guest];
    if (its.line.empty()) its.turn = turns.insert(turns.end(), guest->guest);
    its.line.splice(its.line.end(), silent, guest);
  }

  void HandOn() {
    while (!turns.empty() && newcomers.HasSpace(Steady::now())) {
      const Line::iterator next = std::prev(ready[turns.front()].line.end());  // who has not given up yet
      turns.splice(turns.end(), turns, turns.begin());  // its next one waits until others had a turn
      Admit(TakeOut(next));
    }
    waits = !turns.empty();
  }

  // Out of the line it stands in.
  Waiting TakeOut(Line::iterator guest) {
    Waiting out = std::move(*guest);
    by_fd.erase(out.fd.get());
    if (!out.spoke) {
      silent.erase(guest);
      return out;
    }
    const auto its = ready.find(out.guest);
    its->second.line.erase(guest);
    if (its->second.line.empty()) {
      turns.erase(its->second.turn);
      ready.erase(its);
    }
    return out;
  }

  void Admit(Waiting guest) {
    char first = 0;
    if (recv(guest.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return newcomers.Went(guest.guest);
    ++counts[kAdmitted];
    newcomers.Add(guest.fd.get(), PeerOf(guest.from), guest.guest, Steady::now());
    spec.admit(std::move(guest.fd), guest.from);
  }

  void SendAway(Line::iterator guest) {
    ++counts[kSilent];
    const Waiting out = TakeOut(guest);  // closed, and watched no more by that
    guests.Leave(out.fd.get(), out.guest);
    newcomers.Went(out.guest);
  }

  void SendLateAway() {
    const Steady::time_point now = Steady::now();
    while (!silent.empty() && absl::FromChrono(now - silent.front().since) >= spec.silent) SendAway(silent.begin());
    if (turns.empty() || absl::FromChrono(now - looked_for_late) < absl::Seconds(1)) return;
    looked_for_late = now;
    for (auto guest = turns.begin(); guest != turns.end();) {
      const auto oldest = ready[*guest++].line.begin();  // the guest may be out of turns after it
      if (absl::FromChrono(now - oldest->since) >= kLongestWait) SendAway(oldest);
    }
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

Door::Door(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

void Door::Start() {
  thread_ = std::thread([this] { loop_->Run(); });
}

Door::~Door() { Close(); }

void Door::Close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(loop_->mutex);
    loop_->ending = true;
  }
  loop_->Wake();
  thread_.join();
  loop_->listeners.clear();
}

bool Door::Answers(absl::Duration patience) {
  std::unique_lock lock(loop_->mutex);
  const uint64_t mine = ++loop_->asked;
  loop_->Wake();
  return loop_->turned.wait_for(lock, absl::ToChronoNanoseconds(patience), [&] { return loop_->answered >= mine; });
}

void Door::Known(const std::string& peer, const std::string& who) {
  if (loop_->newcomers.Known(peer, who) && loop_->waits) loop_->Wake();
}

DoorCounts Door::counts() const {
  const auto& c = loop_->counts;
  return {.admitted = c[kAdmitted],
          .screened = c[kScreened],
          .silent = c[kSilent],
          .too_many = c[kTooMany],
          .full = c[kFull],
          .no_descriptors = c[kNoDescriptors],
          .ended = loop_->newcomers.ended(),
          .crowding = loop_->newcomers.crowding()};
}

}  // namespace cw::doors
