// SPDX-License-Identifier: Apache-2.0
//
// What the ring file is to hold of each second: every probe's delay in a sketch, and raw delays as far as a budget
// goes. A path that has more samples than its share keeps every second one of them, then every fourth, and so on, so
// they stay spread over the second. A part of the agent; it is not there without a ring.
//
// Memory: per direction of a path at most 2 × kMostOfPath samples of 16 bytes, and a sketch. Thread rule: the agent's
// loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/peer_names.h"
#include "userspace/telemetry/sketch.h"
#include "userspace/uplink/ring_second.h"
#include "userspace/uplink/seen.h"

namespace cw::agent {

class RingRecorder {
 public:
  static constexpr size_t kSamplesPerSecond = 4000;  // of all paths together, raw
  static constexpr size_t kLeastOfPath = 4, kMostOfPath = 128;
  static constexpr size_t kMostFlows = 256;

  // at_ns: monotonic.
  void Delay(uint32_t pair, uint8_t slot, bool reverse, int64_t at_ns, int64_t delay_ns);
  void Fates(uint32_t pair, uint8_t slot, uint32_t known, uint32_t lost);  // of our probes, on their path there

  // The second that ends now. `paths`: both directions, as they are now. The interval's times are ns since 1970.
  uplink::SecondSeen Take(std::vector<uplink::PathSeen> paths, const FlowBook& flows, const PeerNames& names,
                          const uplink::Interval& interval, int64_t now_ns);

 private:
  struct Direction {
    telemetry::Sketch delay;
    std::vector<uplink::PathSecond::Sample> samples;  // times are monotonic
    uint32_t every = 1, skipped = 0;
    uint32_t known = 0, lost = 0;  // probes whose fate became known
  };
  struct Counted {
    uint64_t bytes = 0, packets = 0, cnps = 0, naks = 0, rnr_naks = 0;
    bool seen = false;
  };
  static uint64_t KeyOf(uint32_t pair, uint8_t slot, bool reverse) {
    return uint64_t{pair} << 9 | uint64_t{slot} << 1 | (reverse ? 1 : 0);
  }
  void AddPath(uplink::PathSeen path, int64_t to_unix_ns, uplink::SecondSeen& out);
  void AddFlows(const FlowBook& flows, const PeerNames& names, uplink::SecondSeen& out);

  absl::flat_hash_map<uint64_t, Direction> now_;
  size_t share_ = kMostOfPath;  // of a direction; the second before says how many there are
  absl::flat_hash_map<FlowKey, Counted> counted_;
};

}  // namespace cw::agent
