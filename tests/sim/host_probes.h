// SPDX-License-Identifier: Apache-2.0
//
// A host's probes as its agent sends them by default: config::ProbeConfig in the production cadence.
#pragma once

#include <cstdint>

#include "userspace/config/config.h"
#include "userspace/probe/cadence.h"

namespace cw::sim {

probe::CadenceOptions AgentCadence(const config::ProbeConfig& config);

// Pairs 0 … active − 1 carry data, the idle ones follow; the clock rests on the first idle ones, or, without any, on
// pairs that carry data.
void AddPeers(const config::ProbeConfig& config, int active, int idle, int slots, probe::Cadence& cadence);

}  // namespace cw::sim
