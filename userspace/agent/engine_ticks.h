// SPDX-License-Identifier: Apache-2.0
//
// Wakes the probe engine when it next has something to do, which any call to it may bring forward. Thread rule: the
// agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/timers.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class EngineTicks {
 public:
  // Local time, ns.
  struct Engine {
    std::function<int64_t(int64_t now_ns)> next;  // INT64_MAX: nothing is to be done
    std::function<void(int64_t now_ns)> tick;
  };

  // All of them outlive it.
  EngineTicks(Engine engine, Timers& timers, const Clock& clock)
      : engine_(std::move(engine)), timers_(timers), clock_(clock) {}

  void Schedule();

 private:
  const Engine engine_;
  Timers& timers_;
  const Clock& clock_;
  int64_t at_ns_ = INT64_MAX;  // the earliest that is waited for
};

}  // namespace cw::agent
