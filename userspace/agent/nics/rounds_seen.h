// SPDX-License-Identifier: Apache-2.0
//
// Probes of a pair that were sent, and those that our own program saw leave. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <optional>

#include "userspace/agent/nics/hooks.h"
#include "userspace/agent/pair_state.h"
#include "userspace/probe/engine.h"

namespace cw::agent {

// nullopt: none is sent. Rounds of another session, as after a restart of the agent: none of this one was seen.
inline std::optional<Hooks::Rounds> RoundsOf(const PairState& pair, uint32_t session, probe::Engine& engine) {
  const uint32_t sent = engine.RoundOf(pair.index);
  if (sent == 0) return std::nullopt;
  const cw_pair& shared = *engine.mesh().shared(pair.index);
  const bool same = probe::Load(shared.tx_session) == session;
  return Hooks::Rounds{.sent = sent, .seen = same ? probe::Load(shared.cur_round) : 0};
}

}  // namespace cw::agent
