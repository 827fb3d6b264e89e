// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace cw::bench {

// What the thread that answers probes by verbs needs for one request besides the device's own calls, ns: packing, the
// run of the ingress program, taking the answer apart. One figure per request; needs root.
absl::StatusOr<std::vector<double>> TurnRounds(int requests);

}  // namespace cw::bench
