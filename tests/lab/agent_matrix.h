// SPDX-License-Identifier: Apache-2.0
//
// One test, in each of the modes and with an agent that has run from the start or took over from another one: nightly
// sets CW_LAB_MODE (observe, protect, optimize) and CW_LAB_AGENT (running, restarted, killed).
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "userspace/lab/host_fault.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

inline std::string ModeAsked() {
  const char* mode = std::getenv("CW_LAB_MODE");
  return mode == nullptr ? "protect" : mode;
}

// Another agent takes over, where that is asked for; returns when its paths are up.
inline void TakeOverAsAsked(Testbed& testbed, int host) {
  const char* how = std::getenv("CW_LAB_AGENT");
  const std::string agent = how == nullptr ? "running" : how;
  if (agent == "running") return;
  ASSERT_TRUE(agent == "restarted" || agent == "killed") << "CW_LAB_AGENT=" << agent;
  ASSERT_TRUE(EndAgent(testbed, host, agent == "killed" ? SIGKILL : SIGTERM).ok());
  ASSERT_TRUE(testbed.StartAgent(host).ok());
  const absl::Status up = testbed.WaitPathsUp(absl::Seconds(30));
  ASSERT_TRUE(up.ok()) << up;
}

}  // namespace cw::lab
