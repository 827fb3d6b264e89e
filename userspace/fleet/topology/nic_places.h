// SPDX-License-Identifier: Apache-2.0
//
// Where NICs are plugged in, by the newest word. A NIC that was moved, or two that were exchanged, are told for a while
// to be in both places: other hosts trace the way to it twice a minute only, and who is disconnected never does again.
// That would make one switch of two. A NIC's own first hop is the newest word: it changes with the NIC's port. Once it
// did, traces to the NIC count again when every path has been traced since. Pure. Threads: one at a time.
#pragma once

#include <cstdint>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

class NicPlaces {
 public:
  static constexpr int64_t kSameReportNs = 15'000'000'000;  // a large host's reports come in several batches
  static constexpr int64_t kTracedAnewNs = 60'000'000'000;  // twice probe.reverify_interval

  // All that is known now. What was learned before stays known.
  void Learn(absl::Span<const Trace> traces);
  // Told by a NIC that has been moved since: nothing of it holds.
  bool IsPast(const Trace& trace) const;
  // The last hop is where the destination is plugged in.
  bool EndHolds(const Trace& trace) const;
  // When traces to the NIC that was moved last count again, by the time of traces; 0: none was.
  int64_t settled_ns() const { return settled_ns_; }

 private:
  struct Place {
    std::set<Addr> first;  // its own first hops: several where it is a bond over two switches
    int64_t moved_ns = 0;  // 0: never
  };
  absl::flat_hash_map<Addr, Place> places_;
  int64_t settled_ns_ = 0;
};

}  // namespace cw::fleet
