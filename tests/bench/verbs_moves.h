// SPDX-License-Identifier: Apache-2.0
//
// How long queue pairs take to be moved through libcwverbs, from the agent's order to the end of the last change: a
// process with the library and a provider whose changes take 200 us each (tests/unit/verbs/fake_mlx5.h), and the
// agent's own end of the socket.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace cw::bench {

struct MoveTimes {
  std::vector<double> recovery_ms;  // order → last change done, of each round
  std::vector<double> answered_ms;  // order → last answer heard by the agent's end
  std::vector<double> change_us;    // mean time of a change in the provider, of each round
};

// Each round moves all of them to other ports.
absl::StatusOr<MoveTimes> MoveRounds(int queue_pairs, int rounds);

}  // namespace cw::bench
