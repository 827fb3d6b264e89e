// SPDX-License-Identifier: Apache-2.0
//
// What is to be done later on the agent's loop. Thread rule: the agent's loop.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace cw::agent {

class Timers {
 public:
  virtual ~Timers() = default;
  virtual void After(absl::Duration delay, std::function<void()> then) = 0;  // once
};

}  // namespace cw::agent
