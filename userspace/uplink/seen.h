// SPDX-License-Identifier: Apache-2.0
//
// What the agent saw of its paths within an interval, and of its flows up to now, as it hands it to the uplink: plain
// values, made on the agent's loop, packed elsewhere. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/model/addr.h"
#include "userspace/model/flow.h"
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
  // Probes of which it is known whether they arrived, and that did not; outages left out.
  uint64_t known = 0, lost = 0;
  uint64_t silent_ms = 0;      // probed for so long, and nothing arrived; 0: it is not silent
  bool heard = false;          // reverse: probes of the peer arrive, on some path
  uint32_t largest_bytes = 0;  // the largest packet that arrives, where full-size ones do not
  bool full_size = false;      // packets of full size arrive; neither: it is not known
  uint32_t pair = 0;           // the agent's own names of it, which it tells nobody
  uint8_t slot = 0;
};

// A flow that this host sends; counts are since it began.
struct FlowSeen {
  FlowKey key;
  uint64_t bytes = 0;        // IP bytes; where no program sees its packets: what its process posted
  bool posted = false;       // that is what `bytes` counts
  uint64_t retransmits = 0;  // packets
  uint64_t ce = 0;           // packets with CE that arrived for its queue pair
  uint64_t cnps = 0;         // congestion notifications that arrived for it
  bool active = false;       // it had packets a moment ago; otherwise nothing below is set
  uint32_t qpn = 0;          // local; 0: not known
  uint32_t pid = 0;          // owner, 0: not known
  std::string peer, process, label;
  uint16_t path_port = 0;   // of the path that it takes, as PathSeen has it; 0: not known
  telemetry::Sketch queue;  // ns of its own packets above the path's base, some last seconds; empty: not known
};

// `floor_ns`: smaller delays are told as none. The exact maximum stays in the last bucket, as PackedSketch wants it.
PackedSketch PackOf(const telemetry::Sketch& sketch, uint64_t floor_ns);

// In network order, 4 or 16 bytes; zero: none.
std::string BytesOf(const Addr& addr);

}  // namespace cw::uplink
