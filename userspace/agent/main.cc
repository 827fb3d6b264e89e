// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/daemon.h"

int main(int argc, char** argv) {
  return cw::agent::DaemonMain(
      argc, argv, "cwagentd",
      [](const cw::config::Config&, const std::string&) -> absl::StatusOr<cw::agent::TimeSource> {
        return cw::agent::TimeSource{std::make_shared<cw::MonotonicClock>(), "", cw::agent::KernelTime::Real()};
      });
}
