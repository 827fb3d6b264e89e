// SPDX-License-Identifier: Apache-2.0
//
// What the agent saw of its paths within an interval, as it hands it to the uplink: plain values, made on the agent's
// loop, packed elsewhere. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/model/addr.h"
#include "userspace/model/packed_sketch.h"
#include "userspace/telemetry/sketch.h"

namespace cw::uplink {

// One direction of one way between two NICs.
struct PathSeen {
  Addr local, remote;
  std::string peer;                       // its host's name
  uint16_t udp_port = 0;                  // the entropy that takes it
  bool reverse = false;                   // from the peer to this host
  int state = 0;                          // cwfabric.proto's PathState
  std::optional<std::vector<Addr>> hops;  // zero = silent; none: not known
  telemetry::Sketch queue;                // ns above base
  uint64_t base_ns = 0;                   // 0: not known
  uint64_t sent = 0, answered = 0;        // probes
  uint32_t pair = 0;                      // the agent's own names of it, which it tells nobody
  uint8_t slot = 0;
};

// `floor_ns`: smaller delays are told as none. The exact maximum stays in the last bucket, as PackedSketch wants it.
PackedSketch PackOf(const telemetry::Sketch& sketch, uint64_t floor_ns);

}  // namespace cw::uplink
