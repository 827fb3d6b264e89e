// SPDX-License-Identifier: Apache-2.0
//
// The fabric's self-test: do UDP source ports choose paths, and they alone? Judged from traces (probe/discovery.h).
//   sprayed  the same port is answered by other switches each time: no port is a path
//   QPN      the same port is answered by other switches when the destination QPN in the BTH is another one: probes,
//            which all have one QPN, do not take the paths of the flows with the same port
//   TTL      traces contradict each other: a port of a switch is the next hop of different switches, because packets
//            that shall end at different distances take different paths. What a trace shows is then not what data take.
//            It rests on switches that answer from the address of the port where the packet came in (Linux:
//            net.ipv4.icmp_errors_use_inbound_ifaddr); others may look so without being so.
//            Where the last switch answers all ports from one address though it is reached from several, addresses are
//            those of switches, and paths that meet again prove nothing.
// Whether what switches hash on shows only behind switches that do not answer is not told. Pure. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "userspace/probe/hops.h"

namespace cw::probe {

enum class Hashing { kUnknown, kPorts, kSinglePath, kTtl, kQpn, kSprayed };

// Nothing speaks against it that what a port shows is what flows on it get. Unknown counts as yes: silent switches.
bool PortsChoosePaths(Hashing hashing);

// It was seen to be so: moves for balance make sense. Unknown counts as no, where the last path is always as good as
// the next; a dead path is left all the same, as any other port is better than that.
bool PortsSeenToChoose(Hashing hashing);

// The path of a flow is that of the probes with its port. Where it is not, a dead slot says nothing of flows. On
// fabrics that hash on the TTL it is, as long as data are sent with the probes' TTL of 64.
bool ProbesFollowFlows(Hashing hashing);

// The n-th QPN that traces are sent to in order to see whether it matters; all 18 lower bits vary.
uint32_t TestQpn(uint32_t n);

// Whether different ports were answered by different switches at the same distance.
bool PortsDiffer(const std::map<uint16_t, Hops>& traced);

// Whether too many traces to be due to one change of routes contradict the others.
bool TracesContradict(const std::map<uint16_t, Hops>& traced);

// Traces a few ports several times each: first with the probes' QPN, then with another one each time.
class RepeatTest {
 public:
  // first: ports to trace again, with what they showed before. None: the test is over at once and shows nothing.
  void Begin(const std::map<uint16_t, Hops>& first);
  void Cancel() { ports_.clear(); }
  bool running() const { return !Wanted().empty(); }
  std::vector<uint16_t> Wanted() const;  // ports whose next trace is to be made
  uint32_t Qpn(uint16_t port) const;     // to which QPN
  void Add(uint16_t port, const Hops& hops);
  // An answer that changed and changed again: a change of routes does so once.
  bool Sprayed() const;
  // The same, with another QPN each time. Spraying looks so, too.
  bool QpnMatters() const;

 private:
  struct Port {
    Hops last;                          // newest answer by TTL − 1
    std::map<size_t, int> changes;      // with one QPN
    std::map<size_t, int> qpn_changes;  // with another each time
    int left = 0;                       // with one QPN
    int qpns_left = 0;
  };
  std::map<uint16_t, Port> ports_;
};

}  // namespace cw::probe
