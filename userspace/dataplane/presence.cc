// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/presence.h"

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace cw::dataplane {
namespace {

int OpenCounter(perf_event_attr attr, pid_t thread, int cpu) {
  constexpr int kNoGroup = -1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, thread, cpu, kNoGroup, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

absl::StatusOr<Presence> Presence::Enter(const std::string& pin) {
  auto map = maps::BpfMap::OpenPinned(pin);
  if (!map.ok()) return map.status();
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof(attr);
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.disabled = 1;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  // A processor's: with one of a thread, the kernel has more to do at each switch between any two threads.
  maps::UniqueFd event(OpenCounter(attr, /*thread=*/-1, sched_getcpu()));
  if (!event.ok()) event = maps::UniqueFd(OpenCounter(attr, /*thread=*/0, /*cpu=*/-1));  // without CAP_PERFMON
  if (!event.ok()) return absl::ErrnoToStatus(errno, "perf_event_open");
  const uint32_t key = 0;
  const int fd = event.get();
  if (auto s = map->Update(&key, &fd); !s.ok()) return s;
  return Presence(*std::move(map), std::move(event));
}

}  // namespace cw::dataplane
