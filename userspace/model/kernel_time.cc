// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/kernel_time.h"

#include <sys/timex.h>

namespace cw {

std::optional<uint64_t> KernelTimeBoundNs() {
  timex state{};
  const int result = adjtimex(&state);
  if (result < 0 || result == TIME_ERROR || (state.status & STA_UNSYNC) != 0) return std::nullopt;
  return static_cast<uint64_t>(state.maxerror) * 1000;
}

}  // namespace cw
