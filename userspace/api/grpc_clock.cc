// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/grpc_clock.h"

#include <grpc/event_engine/event_engine.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/version_info.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>

// Of gRPC 1.51, which exports it and declares it in no header: timers of a second kind (when to connect again) are its.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51
namespace grpc_event_engine::experimental {
std::shared_ptr<EventEngine> GetDefaultEventEngine();
}
#define CW_ENGINE_OF_TIMERS
#endif

namespace cw::api {
namespace {

constexpr int64_t kSoonMs = 10;           // one that is due already wakes nobody
constexpr time_t kNever = 4'000'000'000;  // seconds from now: only sets of the clock wake

void Watch(int fd) {
  while (true) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const itimerspec never{.it_interval = {}, .it_value = {.tv_sec = now.tv_sec + kNever, .tv_nsec = 0}};
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr) != 0 && errno != ECANCELED)
      return;
    uint64_t times = 0;
    if (read(fd, &times, sizeof(times)) < 0 && errno == ECANCELED) WakeGrpcTimers();
  }
}

}  // namespace

// A timer that is due before all others ends the wait for those.
void WakeGrpcTimers() {
  auto alarm = std::make_shared<grpc::Alarm>();
  alarm->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kSoonMs, GPR_TIMESPAN)),
             [alarm](bool) mutable { alarm.reset(); });
#ifdef CW_ENGINE_OF_TIMERS
  grpc_event_engine::experimental::GetDefaultEventEngine()->RunAfter(std::chrono::milliseconds(kSoonMs), [] {});
#endif
}

void WatchClockForGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    const int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
    if (fd >= 0) std::thread(Watch, fd).detach();
  });
}

}  // namespace cw::api
