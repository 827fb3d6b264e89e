// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/greeting.h"

namespace cw::agent {

void Greeting::Send(int64_t now_ns) {
  for (const auto& [index, pair] : pairs_) {
    if (pair->last_reply_ns == 0 || (pair->hello_ns != 0 && now_ns - pair->hello_ns <= kAgainNs)) continue;
    pair->hello_ns = now_ns;
    mail_.Send(index, probe::Hello{.host = vitals_.host_name, .version = version_});
  }
}

}  // namespace cw::agent
