// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/softirq_meter.h"

#include <bpf/libbpf.h>
#include <time.h>

#include <cerrno>

#include "softirq.skel.h"

namespace cw::bench {
namespace {

int64_t Nanoseconds(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

class Meter final : public SoftirqMeter {
 public:
  Meter(softirq* programs, clockid_t cpu_clock) : programs_(programs), cpu_clock_(cpu_clock) {}
  ~Meter() override { softirq__destroy(programs_); }

  absl::StatusOr<Reading> Read() const override {
    timespec now{}, cpu{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (clock_gettime(cpu_clock_, &cpu) != 0) return absl::ErrnoToStatus(errno, "CPU time of the agent");
    return Reading{.at_ns = Nanoseconds(now),
                   .cpu_ns = Nanoseconds(cpu),
                   .softirq_ns = static_cast<int64_t>(__atomic_load_n(&programs_->bss->stolen_ns, __ATOMIC_RELAXED))};
  }

 private:
  softirq* programs_;
  clockid_t cpu_clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SoftirqMeter>> SoftirqMeter::Start(pid_t process) {
  clockid_t cpu_clock{};
  if (const int error = clock_getcpuclockid(process, &cpu_clock); error != 0) {
    return absl::ErrnoToStatus(error, "CPU clock of the agent");
  }
  softirq* programs = softirq__open();
  if (programs == nullptr) return absl::ErrnoToStatus(errno, "opening the soft interrupts' programs");
  auto meter = std::make_unique<Meter>(programs, cpu_clock);
  programs->rodata->target_tgid = static_cast<uint32_t>(process);
  if (const int error = softirq__load(programs); error != 0) {
    return absl::ErrnoToStatus(-error, "loading the soft interrupts' programs");
  }
  if (const int error = softirq__attach(programs); error != 0) {
    return absl::ErrnoToStatus(-error, "attaching to the tracepoints of soft interrupts");
  }
  return meter;
}

}  // namespace cw::bench
