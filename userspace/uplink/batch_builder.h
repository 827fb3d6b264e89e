// SPDX-License-Identifier: Apache-2.0
//
// Batches of one run from what the agent saw: numbers them, and sends what seldom changes (hop lists by their hash,
// names of paths) once, until it is asked for all of it again. Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/uplink/seen.h"

namespace cw::uplink {

namespace wire = ::cwfabric::v1;

struct Interval {
  int64_t from_ns = 0, to_ns = 0;  // ns since 1970
  uint64_t bound_ns = 0;           // neither is wrong by more
};

class BatchBuilder {
 public:
  static constexpr uint32_t kMostPaths = 20'000;  // of a run; what is beyond is left out, and counted
  // Below is what stamps in software scatter by, and three packets at 100 Gbit/s: no queue that anybody acts on.
  static constexpr uint64_t kFloorNs = 1000;
  static constexpr size_t kMostEventBytes = 256 << 10;

  BatchBuilder(std::string host, uint64_t run) : host_(std::move(host)), run_(run) {}

  // One or more batches, since one must not become too large for the spool.
  std::vector<wire::Batch> Events(absl::Span<const wire::Event> events, const Interval& interval);
  // Paths' records and, where they changed since the last call, inventory and clock.
  wire::Batch Detail(absl::Span<const PathSeen> paths, const wire::Inventory& inventory, const wire::ClockState& clock,
                     const Interval& interval);
  // A batch of this run with nothing in it yet.
  wire::Batch Begin(const Interval& interval);
  // The number of a path from here that was told of; 0: it was not.
  uint32_t FindPath(const Addr& local, const Addr& remote, uint16_t udp_port) const;
  // The service knows nothing of this run any more.
  void DefineAgain();
  // All that is defined by now: for the first of several batches that were made before DefineAgain.
  wire::Definitions Known() const;
  uint64_t left_out() const { return left_out_; }

 private:
  using Key = std::tuple<Addr, Addr, uint16_t, bool>;
  struct Named {
    wire::PathName name;
    bool told = false;
  };
  // 0: no number is left.
  uint32_t NumberOf(const PathSeen& path, wire::Definitions& definitions);
  uint64_t Tell(const std::vector<Addr>& hops, wire::Definitions& definitions);

  std::string host_;
  uint64_t run_;
  uint64_t sequence_ = 0;
  std::map<Key, Named> paths_;
  struct Hops {
    wire::HopList list;
    bool told = false;
  };
  absl::flat_hash_map<uint64_t, Hops> hops_;
  std::string inventory_, clock_;  // as told last
  uint64_t left_out_ = 0;
};

}  // namespace cw::uplink
