// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/presence.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace cw::dataplane {

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
  constexpr int kThisThread = 0, kAnyCpu = -1, kNoGroup = -1;
  maps::UniqueFd event(
      static_cast<int>(syscall(SYS_perf_event_open, &attr, kThisThread, kAnyCpu, kNoGroup, PERF_FLAG_FD_CLOEXEC)));
  if (!event.ok()) return absl::ErrnoToStatus(errno, "perf_event_open");
  const uint32_t key = 0;
  const int fd = event.get();
  if (auto s = map->Update(&key, &fd); !s.ok()) return s;
  return Presence(*std::move(map), std::move(event));
}

}  // namespace cw::dataplane
