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

// Why what is under way may be lost.
enum class TailCause : uint8_t {
  kDead = 0,     // our path `slot` died
  kLossy = 1,    // our path `slot` is left because it loses packets
  kNoData = 2,   // our path `slot` is left because it delivers probes alone
  kWayBack = 3,  // the peer left its own path `slot`, with acknowledgements
  kChance = 4,   // a flow that no path is known of was given another port
  kNic = 5,      // another NIC carries the packets
};

struct WatchedTail {
  control::TailWatch watch;
  TailCause cause;
  uint8_t slot;  // CW_SLOT_NONE: no path is known
  // Ours, or -1.
  int OwnPath() const { return cause <= TailCause::kNoData && slot != CW_SLOT_NONE ? slot : -1; }
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
