// SPDX-License-Identifier: Apache-2.0
//
// What the agent looks after when a path has died: sent flows whose last packets, or the acknowledgements for them, may
// have died with it, and what peers have to be told for theirs. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/control/tail_repair.h"
#include "userspace/model/flow.h"

namespace cw::agent {

struct WatchedTail {
  control::TailWatch watch;
  uint8_t slot;   // that died: ours, or the peer's own path of this number
  bool reversed;  // the peer's
};

// Our flows to a peer that were on a path when it died: told twice, because the first may take the next dying path.
struct DeathNotice {
  uint32_t pair = 0;
  uint8_t slot = 0;
  std::vector<uint32_t> qpns;
  int64_t due_ns = 0;  // monotonic
  int left = 2;
};

struct TailCounts {
  uint64_t watched = 0;     // flows that had something under way when a path died
  uint64_t naks = 0;        // resends asked for
  uint64_t repaired = 0;    // flows that went on after it
  uint64_t given_up = 0;    // flows that did not
  uint64_t qp_unknown = 0;  // flows of which our own QPN is not known
  uint64_t reads_left = 0;  // … whose queue pair was answered to READs
  uint64_t told = 0;        // deaths told to peers
  uint64_t heard = 0;       // deaths heard from peers
};

struct TailBook {
  absl::flat_hash_map<FlowKey, WatchedTail> watched;
  std::vector<DeathNotice> notices;
  bool ticking = false;
  TailCounts counts;
};

}  // namespace cw::agent
