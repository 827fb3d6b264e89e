// SPDX-License-Identifier: Apache-2.0
//
// Who moves a flow: the kernel's program, where it sees the packets, or the library in the process that owns the queue
// pair. What is decided for both alike goes by this. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "userspace/agent/paths/path_lost.h"
#include "userspace/control/returns.h"
#include "userspace/model/flow.h"

namespace cw::agent {

// A flow left a bad path, and is to come back.
using LeftBadPath =
    std::function<void(const FlowKey& flow, uint32_t pair, control::ReturnPlace from, control::ReturnPlace to)>;

class Mover {
 public:
  virtual ~Mover() = default;
  virtual void OnPathLost(const PathLost& lost) = 0;
  virtual std::vector<control::ReturnFlow> Flows() const = 0;  // that it moves, where they are now
  // false: it cannot be asked to now.
  virtual bool GoBack(const control::ReturnAction& action) = 0;
};

}  // namespace cw::agent
