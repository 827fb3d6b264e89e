// SPDX-License-Identifier: Apache-2.0
//
// What an instance keeps in the kernel, read from its pins as bpftool would, whether an agent runs or not: counters,
// the way that each flow takes, and how full its maps are. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::bench {

// A flow that this host sends to a peer.
struct SentFlow {
  int slot = 0;
  int port = 0;  // source port written, 0: its own
  uint32_t moves = 0;
  uint64_t packets = 0;
  int reason = 0;  // enum cw_move_reason of the last move
};

struct PinnedState {
  std::map<std::string, uint64_t> counters;  // maps/abi.h, CW_COUNTERS
  std::map<std::string, SentFlow> sent;      // by "10.0.0.10>10.0.1.10/qp0x1a2b"
  std::map<std::string, uint64_t> received;  // packets, by the same
};

// Opens what is pinned now: an exchange that made new maps would be seen.
absl::StatusOr<PinnedState> ReadPinned(const std::string& instance);

// What an agent that came back, or programs that were exchanged, may not do.
struct Damage {
  int steering_changed = 0;  // flows on another slot or port, or no longer known
  int counters_back = 0;     // counters, and packets of flows, that are lower
  std::vector<std::string> what;
};
// `received` is a map that forgets by itself: flows that are missing there are no damage. Pure.
Damage Compare(const PinnedState& before, const PinnedState& after);

struct MapFill {
  uint64_t entries = 0;  // of a hash map; of a ring the bytes that nobody has read
  bool evicts = false;   // least recently used entries go when it is full, and only then
  bool ring = false;
};
// Maps that can grow: hash maps and rings, by their names. Arrays have all their entries from the start.
absl::StatusOr<std::map<std::string, MapFill>> ReadFill(const std::string& instance);

// Numbers of the programs that are pinned; they change when programs are exchanged.
absl::StatusOr<std::vector<uint32_t>> PinnedPrograms(const std::string& instance);

}  // namespace cw::bench
