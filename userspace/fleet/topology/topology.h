// SPDX-License-Identifier: Apache-2.0
//
// The fabric as all hosts' traces together show it. A switch answers a trace with the address of the port where the
// packet came in, so one switch has many addresses; they are joined by three rules:
//   1. fleet.toml names them.
//   2. A cable has one other end: all hops that were seen just before one port are ports of one switch.
//   3. A NIC is plugged into one switch: its first hop, and the last hop of whoever sends to it. (Not where it has
//   several
//      first hops: a bond over two switches.) Of a NIC that was moved only the newest word counts: nic_places.h.
// A switch between only two others (two leaves, two pods) is seen as two, one for each direction, unless the file names
// it: its two ports are never before the same one. Rule 2 does not hold for a switch that always answers with one
// address of its own. Such an address gives itself away: it follows and precedes the same neighbour, or is a NIC's
// first hop and follows a switch. Two switches that fleet.toml tells apart are never joined; what would have joined
// them is told. A hop that did not answer joins nothing, and the links beside it are not known. Alias resolution by
// neighbours: cf. K. Keys, "Internet-scale IP alias resolution techniques", CCR 2010, section on graph-based ones.
// A host with made-up traces can let a port look like such an address, and its switch falls into single ports. Where
// that does harm (a drain that covers too little), Split::kBySeveral wants evidence that no host alone can make up.
//
// Pure and deterministic: the order of the traces does not matter. Cost: about linear in hops. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "userspace/fleet/topology/fleet_file.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

struct Trace {
  Addr source;             // the NIC that sent
  Addr destination;        // the NIC that it went to
  std::vector<Addr> hops;  // switches in order; zero = silent; zero at the end: where it ends is not known
  int64_t time_ns = 0;     // when its host told it last
  uint64_t host = 0;       // which host reports it (a hash of its name); 0: `source` is taken for it
};

struct Switch {
  std::string name;             // fleet.toml's, or its least address
  bool named = false;           // by fleet.toml
  std::vector<Addr> addresses;  // ascending
  int tier = 0;                 // 1: NICs are plugged in; 2: leaves are; … 0: not known
  std::string rack, rail;
  int plane = 0;  // from 1, by name: no way leads from one to another; 0: there is but one
};

// One direction of one cable. Its names over hosts are {hop before, port at its end}: several, since the hop before is
// named by where the packet came in there.
struct TopologyLink {
  int from = -1, to = -1;                  // switches; −1: a NIC's end
  Addr from_nic, to_nic;                   // the NIC there
  Addr port;                               // where it ends: the port's address, or the NIC's
  std::vector<std::pair<Addr, Addr>> ids;  // ascending
  uint64_t traces = 0;                     // that took it
};

struct Topology {
  std::vector<Switch> switches;        // by name
  std::vector<TopologyLink> links;     // by from, to, port
  std::map<Addr, int> switch_of;       // address → index
  std::map<Addr, int> leaf_of;         // NIC → index
  uint64_t silent_hops = 0;            // of so many hops nothing is known
  std::vector<std::string> conflicts;  // what fleet.toml forbade to join, a sentence each
};

class NicPlaces;

// Whose word is enough to keep ports apart that rule 2 or 3 would join.
enum class Split : uint8_t {
  kByOne,
  kBySeveral,  // of fewer than four hosts any: they cannot outvote each other
};

// places: what earlier traces showed; learns from these.
Topology BuildTopology(absl::Span<const Trace> traces, const FleetFile& fleet, NicPlaces& places,
                       Split split = Split::kByOne);
// By these traces alone.
Topology BuildTopology(absl::Span<const Trace> traces, const FleetFile& fleet, Split split = Split::kByOne);

}  // namespace cw::fleet
