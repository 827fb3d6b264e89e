// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/no_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include "spdlog/spdlog.h"

namespace cw::agent {

void NoMemoryDumps() {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  if (setrlimit(RLIMIT_CORE, &none) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    spdlog::warn("a crash may write this process's memory, secrets included, to a core dump");
}

}  // namespace cw::agent
