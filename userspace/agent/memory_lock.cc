// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/memory_lock.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

MemoryLock& State() {
  static auto& state = *new MemoryLock;
  return state;
}

}  // namespace

void LockMemory() {
  rlimit limit{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  (void)setrlimit(RLIMIT_MEMLOCK, &limit);
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) {
    State().note = absl::StrCat("RLIMIT_MEMLOCK is ", limit.rlim_cur >> 10, " KiB; LimitMEMLOCK=infinity");
  } else if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) {
    State().note = absl::StrCat("mlockall: ", strerror(errno));
  } else {
    State().locked = true;
  }
}

const MemoryLock& PresentMemoryLock() { return State(); }

}  // namespace cw::agent
