// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/fleet_truth_load.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "tests/lab/eventually.h"

namespace cw::lab {
namespace {

void PinTo(std::thread& thread, unsigned processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

BusyMachine::BusyMachine(int per_processor, absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  const auto burn = [this, end] {
    volatile uint64_t work = 1;
    while (!stop_ && absl::Now() < end) {
      for (int i = 0; i < 100'000; ++i) work = work * 2862933555777941757u + 3037000493u;
    }
  };
  for (unsigned processor = 0; processor < std::thread::hardware_concurrency(); ++processor) {
    for (int i = 0; i < per_processor; ++i) PinTo(threads_.emplace_back(burn), processor);
  }
}

BusyMachine::~BusyMachine() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

Starved::Starved(pid_t pid, absl::Duration runs, absl::Duration period, absl::Duration limit)
    : thread_([this, pid, runs, period, end = absl::Now() + limit] {
        while (!stop_ && absl::Now() < end && kill(pid, SIGSTOP) == 0) {
          Hold(period - runs);
          (void)kill(pid, SIGCONT);
          Hold(runs);
        }
      }) {}

Starved::~Starved() {
  stop_ = true;
  thread_.join();
}

}  // namespace cw::lab
