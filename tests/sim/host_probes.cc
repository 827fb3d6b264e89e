// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/host_probes.h"

#include <algorithm>

#include "absl/time/time.h"

namespace cw::sim {

probe::CadenceOptions AgentCadence(const config::ProbeConfig& config) {
  return {.active_interval_ns = absl::ToInt64Nanoseconds(config.active_interval),
          .idle_interval_ns = absl::ToInt64Nanoseconds(config.idle_interval),
          .clock_interval_ns = absl::ToInt64Nanoseconds(config.clock_interval),
          .budget_pps = static_cast<double>(config.budget_pps)};
}

void AddPeers(const config::ProbeConfig& config, int active, int idle, int slots, probe::Cadence& cadence) {
  const int first_clock = idle > 0 ? active : 0;
  for (int p = 0; p < active + idle; ++p) {
    const auto pair = static_cast<uint32_t>(p);
    cadence.SetPair(pair, static_cast<uint32_t>(slots), 0);
    if (p < active) cadence.SetActive(pair, true, 0);
    if (p >= first_clock && p < first_clock + config.clock_neighbours) {
      cadence.SetClock(pair, probe::ClockPace::kSteady, 0);
    }
  }
}

}  // namespace cw::sim
