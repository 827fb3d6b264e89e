// SPDX-License-Identifier: Apache-2.0
//
// The fabric that is against the one that was meant. A cable whose traffic comes from another switch than planned is
// told; two cables that each come from where the other should are one swap. What no trace shows is not known, which is
// no fault. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

struct Miswiring {
  enum class Kind { kSwappedCables, kSwappedNics, kCable, kNic };
  Kind kind = Kind::kCable;
  std::vector<Addr> ends;            // ports (or NICs) concerned, ascending: two of a swap
  std::vector<std::string> planned;  // where each ought to come from (or be plugged in) …
  std::vector<std::string> found;    // … and does
  std::string text;                  // one sentence, with what to do
};

struct WiringReport {
  std::vector<Miswiring> faults;
  size_t right = 0;     // cables and NICs as planned
  size_t not_seen = 0;  // planned, and no trace shows them
};

WiringReport CompareWiring(const Topology& topology, const FleetFile& fleet);

}  // namespace cw::fleet
