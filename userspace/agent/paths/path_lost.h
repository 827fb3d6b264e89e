// SPDX-License-Identifier: Apache-2.0
//
// A path that flows are to leave, as those are told who look after what was on it. Who that is, and in which order,
// stands in one place: Agent::OpenRecovery. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "userspace/agent/pair_state.h"

namespace cw::agent {

enum class LossCause : uint8_t {
  kDead,    // by the kernel's verdict; its program moves the flows whose packets it sees
  kLossy,   // it loses a share of its packets
  kNoData,  // it delivers probes alone
};

struct PathLost {
  PairState& pair;
  uint8_t slot;
  LossCause cause;
  bool
      act;  // false: the mode lets it only be told. What the kernel decides, and what owners move, has rules of its own
};

// In the order in which they are to hear of it.
using PathLostSubscribers = std::vector<std::function<void(const PathLost&)>>;

inline void Publish(const PathLostSubscribers& subscribers, const PathLost& lost) {
  for (const auto& tell : subscribers) tell(lost);
}

}  // namespace cw::agent
