// SPDX-License-Identifier: Apache-2.0
//
// A flow-level simulation of a three-tier fat tree with links of one rate and max-min sharing (D. Bertsekas, R.
// Gallager, "Data Networks", §6.5.2). Every NIC runs the production rule of contention (control::DecideMoves), with a
// ContentionState of its own, on what its agent would observe: queueing delay and CE marks of its probes, at the
// cadence that the production code grants them beside other peers; the names of the links that traces find; bytes and
// CNPs of its own flows. Queues and marks of a link come from LinkModel. One thread; the same seed gives the same
// result.
//
// Left out: time that rates need to settle, PFC, flows that pause, loss, wrong bases of delays.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/link_model.h"
#include "userspace/config/config.h"

namespace cw::sim {

struct FabricSimSpec {
  int ports = 8;  // of a switch, even
  int pods = 0;   // 0: as many as ports; pods·(ports/2)² NICs
  int flows_per_nic = 1;
  int peers = 1;        // that they go to, in turn; each NIC is the target of so many
  double sending = 1;   // share of the NICs that send
  int idle_peers = 64;  // that a host probes beside those it sends to
  bool placed = false;  // flows begin on known paths in turn, as the kernel puts new ones; else where hashing put them
  double seconds = 1;
  double window_s = 0.01;  // between two decisions of a host; agents make it no shorter
  int phases = 2;          // groups of hosts that decide one after another within a window
  bool marks = true;       // peers tell how probes were marked
  bool port_rate = false;  // the rule is told the port's rate; agents let it learn what a link carries
  bool steer = true;
  config::ProbeConfig probe{};
  LinkSpec link{};  // its sender_bps is set from flows_per_nic
  uint64_t seed = 1;
};

// Of flows, as shares of what each could have at best: 1 for all is what the best static assignment gives, since a
// full fat tree carries every permutation without a collision (D. Slepian 1952; A. Duguid 1959).
struct Rates {
  double mean = 0, p1 = 0, least = 0;
};

struct WindowResult {
  Rates rates{};
  int moves = 0;
  int undone = 0;   // of these, back to the path that the flow's move before had left
  int in_vain = 0;  // moves of before that the rule found to have brought nothing
  int herd = 0;     // the most flows that came onto one link
};

struct FabricSimResult {
  int nics = 0;
  int flows = 0;
  double probe_interval_s = 0;        // between two probes of a path that is in use
  Rates hashed{};                     // ECMP: every flow on a random path
  Rates central{};                    // known paths dealt out by one that sees all flows, greedily
  std::vector<WindowResult> windows;  // [0]: before the first decision
  double window_s = 0;

  WindowResult Sum(double from_s, double to_s) const;  // moves, undone, in_vain, and the greatest herd
  double ReachedS(double mean) const;                  // first time of that mean; < 0: never
};

// links: made from spec.link with sender_bps = its bps / flows_per_nic.
FabricSimResult SimulateFabric(const FabricSimSpec& spec, const LinkModel& links);
LinkSpec LinkOf(const FabricSimSpec& spec);

}  // namespace cw::sim
