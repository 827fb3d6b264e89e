// SPDX-License-Identifier: Apache-2.0
//
// What the lab's queue pairs lost, by the emulator's and the interfaces' counts. Counts since the start; differences of
// two are what an interval cost. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/lab/emulator.h"
#include "userspace/lab/fabric.h"

namespace cw::bench {

struct Losses {
  uint64_t naks = 0;             // each: a packet was missing, or came after a later one
  uint64_t duplicates = 0;       // packets that came twice
  uint64_t out_of_order = 0;     // packets that came before one that was missing, or late, and were thrown away
  uint64_t timeouts = 0;         // the end of something was missing
  uint64_t icrc_errors = 0;      // damaged on the way
  uint64_t retransmissions = 0;  // packets, of which most had arrived
  uint64_t interface_drops = 0;  // packets, by interfaces of hosts and switches
  uint64_t died = 0;             // queue pairs
  uint64_t emulator_drops = 0;   // packets that the emulator itself had no room for

  Losses operator-(const Losses& earlier) const;
  Losses operator+(const Losses& other) const;
  // Data packets that arrived nowhere, damaged ones among them: of those that were sent again, what came twice or was
  // thrown away had arrived. (Packets that are merely late are sent again, too: a veth gives each to the processor of
  // its sender, and one processor may be ahead of another.)
  uint64_t Lost() const { return retransmissions - std::min(retransmissions, duplicates + out_of_order); }
  // Whether a queue pair or an interface had anything to complain of.
  bool Any() const { return naks + timeouts + icrc_errors + died + interface_drops + Lost() > 0; }
  std::string Text() const;  // "3 NAKs, 1 timeout"; "nothing"
};

absl::StatusOr<Losses> ReadLosses(const lab::Fabric& fabric, const lab::Emulator& emulator);

// Packets that the fabric's interfaces dropped, of a text as /proc/net/dev; loopback and management are left out. Pure.
uint64_t DropsIn(const std::string& proc_net_dev);

}  // namespace cw::bench
