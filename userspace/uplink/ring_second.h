// SPDX-License-Identifier: Apache-2.0
//
// One second of a host as records of its ring file: numbers its paths, and tells a path's name and hops where its block
// of the ring does not have them yet. Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/api/ring.pb.h"
#include "userspace/telemetry/sketch.h"
#include "userspace/uplink/batch_builder.h"
#include "userspace/uplink/seen.h"

namespace cw::uplink {

// What was measured of one direction of a path within a second.
struct PathSecond {
  PathSeen path;  // without sketch
  telemetry::Sketch delay;
  struct Sample {
    int64_t time_ns = 0;   // ns since 1970
    int64_t delay_ns = 0;  // one-way
  };
  std::vector<Sample> samples;  // in order of their arrival
  uint32_t every = 1;           // one in so many is there
};

struct FlowSecond {
  std::string flow, peer;
  uint16_t udp_port = 0;
  uint64_t bytes = 0, packets = 0, cnps = 0, naks = 0, rnr_naks = 0;
};

struct SecondSeen {
  Interval interval;
  std::vector<PathSecond> paths;
  std::vector<FlowSecond> flows;
};

class RingSeconds {
 public:
  static constexpr size_t kPathsAtOnce = 1000;  // of a record: with names some 80 KB
  static constexpr size_t kMostEventBytes = 64 << 10;
  using Put = std::function<absl::Status(const std::string& record)>;

  explicit RingSeconds(uint64_t run) : run_(run) {}

  // As one record, or several. Where `put` says OutOfRange, the record is made once more, with the names of all its
  // paths: for a new block, which knows none.
  absl::Status Write(const SecondSeen& seen, absl::Span<const cwfabric::v1::Event> events, const Put& put);

 private:
  using Key = std::tuple<Addr, Addr, uint16_t, bool>;
  void Anew() { told_.clear(); }
  cwfabric::v1::RingSecond Begin(const Interval& interval) const;
  void Add(const PathSecond& path, const Interval& interval, cwfabric::v1::RingSecond& out);
  uint32_t NumberOf(const PathSeen& path, cwfabric::v1::RingSecond& out);

  const uint64_t run_;
  std::map<Key, uint32_t> numbers_;
  std::map<uint32_t, std::string> told_;  // by number: name as the block has it
};

}  // namespace cw::uplink
