// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/jiffies.h"

#include <bpf/bpf.h>

#include <array>
#include <cerrno>
#include <cmath>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "jiffies.skel.h"

namespace cw::dataplane {
namespace {

struct Reading {
  uint64_t jiffies = 0;
  uint64_t ns = 0;
};

absl::StatusOr<Reading> Read(int program) {
  Reading reading;
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &reading, .ctx_size_in = sizeof(reading));
  if (const int error = bpf_prog_test_run_opts(program, &options); error != 0) {
    return absl::ErrnoToStatus(-error, "cannot read the kernel's jiffies through BPF");
  }
  return reading;
}

}  // namespace

absl::StatusOr<Jiffies> Jiffies::Create() {
  struct jiffies* skeleton = jiffies__open_and_load();
  if (skeleton == nullptr) return absl::ErrnoToStatus(errno, "cannot load the BPF program that reads jiffies");
  const int program = bpf_program__fd(skeleton->progs.cw_jiffies_now);
  absl::StatusOr<Reading> first = Read(program);
  absl::SleepFor(absl::Milliseconds(50));
  absl::StatusOr<Reading> second = Read(program);
  jiffies__destroy(skeleton);
  if (!first.ok()) return first.status();
  if (!second.ok()) return second.status();
  const double rate =
      static_cast<double>(second->jiffies - first->jiffies) * 1e9 / static_cast<double>(second->ns - first->ns);
  int hz = 0;
  for (int candidate : std::array<int, 6>{100, 250, 300, 500, 1000, 1024}) {  // kernel/Kconfig.hz
    if (hz == 0 || std::abs(candidate - rate) < std::abs(hz - rate)) hz = candidate;
  }
  return Jiffies(hz, second->jiffies, static_cast<int64_t>(second->ns));
}

uint64_t Jiffies::AtNs(int64_t monotonic_ns) const {
  const int64_t delta_ns = monotonic_ns - ns_;
  return jiffies_ + static_cast<uint64_t>(delta_ns / 1000 * hz_ / 1000000);
}

int64_t Jiffies::ToNs(uint64_t jiffies) const {
  return ns_ + static_cast<int64_t>(jiffies - jiffies_) * (1'000'000'000 / hz_);
}

}  // namespace cw::dataplane
