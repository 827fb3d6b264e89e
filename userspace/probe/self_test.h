// SPDX-License-Identifier: Apache-2.0
//
// The fabric's self-test: do UDP source ports choose paths, and they alone? Judged from traces (probe/discovery.h).
//   sprayed  the same port is answered by other switches each time: no port is a path
//   TTL      traces contradict each other: a port of a switch is the next hop of different switches, because packets
//            that shall end at different distances take different paths. What a trace shows is then not what data take.
//            It rests on switches that answer from the address of the port where the packet came in (Linux:
//            net.ipv4.icmp_errors_use_inbound_ifaddr); others may look so without being so.
// Hashing on the QPN too is not told: a trace has no queue pair. Pure. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "userspace/probe/hops.h"

namespace cw::probe {

enum class Hashing { kUnknown, kPorts, kSinglePath, kTtl, kSprayed };

// Moves for balance make sense: what a port shows is what flows on it get. Unknown counts as yes: silent switches.
bool PortsChoosePaths(Hashing hashing);

// Whether different ports were answered by different switches at the same distance.
bool PortsDiffer(const std::map<uint16_t, Hops>& traced);

// Whether too many traces to be due to one change of routes contradict the others.
bool TracesContradict(const std::map<uint16_t, Hops>& traced);

// Traces a few ports several times each.
class RepeatTest {
 public:
  // first: ports to trace again, with what they showed before. None: the test is over at once and shows nothing.
  void Begin(const std::map<uint16_t, Hops>& first);
  void Cancel() { ports_.clear(); }
  bool running() const { return !Wanted().empty(); }
  std::vector<uint16_t> Wanted() const;  // ports whose next trace is to be made
  void Add(uint16_t port, const Hops& hops);
  // An answer that changed and changed again: a change of routes does so once.
  bool Sprayed() const;

 private:
  struct Port {
    Hops last;  // newest answer by TTL − 1
    std::map<size_t, int> changes;
    int left = 0;
  };
  std::map<uint16_t, Port> ports_;
};

}  // namespace cw::probe
