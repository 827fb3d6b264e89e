// SPDX-License-Identifier: Apache-2.0
//
// What a fault did to the flows that were on its path, read from the emulator and from the switches' counts.
// Times: CLOCK_MONOTONIC ns. Thread rule: as the emulator's and the fabric's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/lab/emulator.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

// Milliseconds from the cut to the flow's last packet on the link. −1: it was seen there within the last 50 ms.
double LeftMs(const std::vector<FlowCounters>& counted, const std::string& source, uint32_t qpn,
              const LinkDirection& link, int64_t cut_ns, int64_t until_ns);

// Milliseconds from the cut to the end of the outage: of the gaps between delivered packets that begin before the cut
// or within begins_ns after it, the largest. begins_ns: for how long packets go on to arrive. −1: nothing arrived
// before `until_ns`.
double RecoveryMs(const Emulator& emulator, int flow, int64_t cut_ns, int64_t until_ns, int64_t begins_ns);

// When a flow's stalls count to a cut: those that began while it lasted, or with the last progress before it.
struct CutTime {
  int64_t cut_ns = 0;
  int64_t repaired_ns = 0;
  bool Holds(int64_t begin_ns) const;
};

// The longest stall of a flow that counts, the one that goes on when the snapshot was taken included. Empty: none of at
// least SendStats::kLongStallNs.
struct Stall {
  double ms = 0;
  int64_t end_ns = 0;  // INT64_MAX: it goes on
  bool dead = false;
};
Stall LongestStall(const FlowReport& flow, int64_t taken_ns, const CutTime& time);

// Of these flows, those that still use the spine: a data packet (an acknowledgement) of theirs entered it within the
// last 200 ms (a flow without any answer sends one per transport timeout, 67 ms), or they died without leaving.
int StillOn(const Fabric& fabric, const Snapshot& snapshot, const std::vector<int>& flows, int spine,
            bool acknowledgements, int64_t now_ns);

}  // namespace cw::lab
