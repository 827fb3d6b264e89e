// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/stall_witness.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::lab {
namespace {

constexpr int64_t kSleepNs = 1'000'000;
constexpr int64_t kStallNs = 500'000;

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

absl::Status PinAboveAll(std::thread& thread, int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  const sched_param param{.sched_priority = sched_get_priority_max(SCHED_FIFO)};
  int error = pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);
  if (error == 0) error = pthread_setschedparam(thread.native_handle(), SCHED_FIFO, &param);
  if (error == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a thread on processor ", cpu, " above all others: ", strerror(error), "; run as root"));
}

}  // namespace

double LongestStallMs(const std::vector<MachineStall>& stalls, int64_t from_ns, int64_t to_ns) {
  int64_t longest_ns = 0;
  for (const MachineStall& stall : stalls) {
    if (stall.begin_ns < to_ns && stall.end_ns > from_ns)
      longest_ns = std::max(longest_ns, stall.end_ns - stall.begin_ns);
  }
  return static_cast<double>(longest_ns) / 1e6;
}

absl::StatusOr<std::unique_ptr<StallWitness>> StallWitness::Start() {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0) return absl::ErrnoToStatus(errno, "sched_getaffinity");
  std::unique_ptr<StallWitness> witness(new StallWitness());
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    witness->threads_.emplace_back([w = witness.get()] { w->Watch(); });
    if (absl::Status status = PinAboveAll(witness->threads_.back(), cpu); !status.ok()) return status;
  }
  return witness;
}

StallWitness::~StallWitness() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void StallWitness::Watch() {
  while (!stop_) {
    const int64_t due_ns = NowNs() + kSleepNs;
    const timespec due{.tv_sec = due_ns / 1'000'000'000, .tv_nsec = due_ns % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
    const int64_t now_ns = NowNs();
    if (now_ns - due_ns < kStallNs) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    stalls_.push_back({due_ns, now_ns});
  }
}

std::vector<MachineStall> StallWitness::Stalls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stalls_;
}

}  // namespace cw::lab
