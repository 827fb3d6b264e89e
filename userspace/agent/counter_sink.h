// SPDX-License-Identifier: Apache-2.0
//
// How a part of the agent tells its counts, which begin with the agent. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>

namespace cw::agent {

// name, value, what it counts
using CounterSink = std::function<void(const char*, uint64_t, const char*)>;

}  // namespace cw::agent
