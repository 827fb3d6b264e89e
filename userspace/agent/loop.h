// SPDX-License-Identifier: Apache-2.0
//
// The agent's main loop: descriptors, timers, and work handed over by other threads, all run on one thread, so that the
// agent's state needs no lock.
//
// Thread rule: Post, Call and Stop from any thread; everything else on the loop's own thread (or before Run).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/agent/timers.h"

namespace cw::agent {

class Loop final : public Timers {
 public:
  using Callback = std::function<void()>;

  static absl::StatusOr<std::unique_ptr<Loop>> Create();
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  absl::Status AddFd(int fd, Callback readable);
  // Ticks at multiples of the period since the loop was made, so that those of several timers share a wake-up. Ticks
  // that were missed are not made up for. timer: for SetPeriod.
  absl::Status AddTimer(absl::Duration period, Callback tick, int* timer = nullptr);
  // From the next multiple of `period` on.
  void SetPeriod(int timer, absl::Duration period);
  void After(absl::Duration delay, Callback callback) override;

  void Run();  // until Stop
  void Stop();

  void Post(Callback work);
  // Runs `work` on the loop and waits for its result. Unavailable when the loop ends first.
  template <typename T>
  absl::StatusOr<T> Call(std::function<absl::StatusOr<T>()> work) {
    auto state = std::make_shared<Handover<T>>();
    Post([state, work = std::move(work)] { state->Set(work()); });
    return Wait(*state);
  }

 private:
  template <typename T>
  struct Handover {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<absl::StatusOr<T>> result;
    void Set(absl::StatusOr<T> value) {
      std::lock_guard lock(mutex);
      result = std::move(value);
      done.notify_all();
    }
  };
  template <typename T>
  absl::StatusOr<T> Wait(Handover<T>& state) {
    std::unique_lock lock(state.mutex);
    while (!state.result.has_value()) {
      if (state.done.wait_for(lock, std::chrono::milliseconds(100)) == std::cv_status::timeout && ended_.load()) {
        return absl::UnavailableError("the agent is stopping");
      }
    }
    return *std::move(state.result);
  }

  struct Delayed {
    int64_t at_ns;
    Callback callback;
  };
  Loop(int epoll_fd, int wake_fd);
  void RunPosted();
  int RunDelayed();  // milliseconds until the next one, −1: none

  const int64_t origin_ns_;  // CLOCK_MONOTONIC
  int epoll_fd_;
  int wake_fd_;
  std::list<Callback> watches_;  // stable addresses: epoll holds pointers to them
  std::vector<int> timer_fds_;
  std::vector<Delayed> delayed_;
  std::mutex mutex_;
  std::deque<Callback> posted_;  // under mutex_
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace cw::agent
