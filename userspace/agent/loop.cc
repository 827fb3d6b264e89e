// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/time/clock.h"
#include "userspace/model/clock.h"

namespace cw::agent {

Loop::Loop(int epoll_fd, int wake_fd) : origin_ns_(MonotonicClock().NowNs()), epoll_fd_(epoll_fd), wake_fd_(wake_fd) {}

absl::StatusOr<std::unique_ptr<Loop>> Loop::Create() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_fd < 0 || wake_fd < 0) return absl::ErrnoToStatus(errno, "cannot make the main loop");
  std::unique_ptr<Loop> loop(new Loop(epoll_fd, wake_fd));
  absl::Status status = loop->AddFd(wake_fd, [wake_fd] {
    uint64_t count;
    [[maybe_unused]] const ssize_t ignored = read(wake_fd, &count, sizeof(count));
  });
  if (!status.ok()) return status;
  return loop;
}

Loop::~Loop() {
  for (int fd : timer_fds_) close(fd);
  close(wake_fd_);
  close(epoll_fd_);
}

absl::Status Loop::AddFd(int fd, Callback readable) {
  watches_.push_back(std::move(readable));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &watches_.back()}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) < 0) {
    watches_.pop_back();
    return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  return absl::OkStatus();
}

absl::Status Loop::AddTimer(absl::Duration period, Callback tick, int* timer) {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "timerfd");
  timer_fds_.push_back(fd);
  if (timer != nullptr) *timer = fd;
  SetPeriod(fd, period);
  return AddFd(fd, [fd, tick = std::move(tick)] {
    uint64_t expirations;
    if (read(fd, &expirations, sizeof(expirations)) == sizeof(expirations)) tick();
  });
}

void Loop::SetPeriod(int timer, absl::Duration period) {
  const int64_t period_ns = absl::ToInt64Nanoseconds(period);
  const int64_t periods = (MonotonicClock().NowNs() - origin_ns_) / period_ns + 1;
  const absl::Duration next = absl::Nanoseconds(origin_ns_ + periods * period_ns);
  const itimerspec spec{.it_interval = absl::ToTimespec(period), .it_value = absl::ToTimespec(next)};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, nullptr);  // cannot fail: the descriptor and the times are valid
}

void Loop::After(absl::Duration delay, Callback callback) {
  delayed_.push_back({MonotonicClock().NowNs() + absl::ToInt64Nanoseconds(delay), std::move(callback)});
}

int Loop::RunDelayed() {
  const int64_t now_ns = MonotonicClock().NowNs();
  std::vector<Delayed> due;
  for (size_t i = 0; i < delayed_.size();) {
    if (delayed_[i].at_ns > now_ns) {
      ++i;
      continue;
    }
    due.push_back(std::move(delayed_[i]));
    delayed_.erase(delayed_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (Delayed& delayed : due) delayed.callback();
  int64_t next_ns = -1;
  for (const Delayed& delayed : delayed_) {
    const int64_t left_ns = std::max<int64_t>(delayed.at_ns - now_ns, 0);
    next_ns = next_ns < 0 ? left_ns : std::min(next_ns, left_ns);
  }
  return next_ns < 0 ? -1 : static_cast<int>(next_ns / 1000000 + 1);
}

void Loop::RunPosted() {
  std::deque<Callback> work;
  {
    std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (Callback& callback : work) callback();
}

void Loop::Run() {
  epoll_event events[32];
  while (!stop_.load()) {
    const int timeout_ms = RunDelayed();
    const int count = epoll_wait(epoll_fd_, events, 32, timeout_ms);
    for (int i = 0; i < count; ++i) (*static_cast<Callback*>(events[i].data.ptr))();
    RunPosted();
  }
  RunPosted();
  ended_.store(true);
}

void Loop::Post(Callback work) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(wake_fd_, &one, sizeof(one));
}

void Loop::Stop() {
  stop_.store(true);
  Post([] {});
}

}  // namespace cw::agent
