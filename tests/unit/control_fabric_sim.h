// SPDX-License-Identifier: Apache-2.0
//
// A packet-level simulation of a leaf–spine fabric for tests of the contention rule: hosts on one leaf, receivers on
// another, one queue per spine, CE marks from a virtual queue, senders that react to CNPs after DCQCN (Zhu et al.,
// SIGCOMM 2015) with timers for slow links, and on each host one probe per slot and millisecond and a ContentionState
// of its own, which sees nothing of other hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "userspace/control/contention.h"

namespace cw::control {

struct SimSpec {
  int hosts = 1;
  int flows = 8;  // dealt to hosts in turn
  int spines = 4;
  double link_bps = 400e6;
  double receiver_bps = 0;    // one link behind all spines; 0 = none
  double burst_s = 0;         // senders emit what this long brings at once, up to four packets
  double window_s = 0.04;     // between two decisions of a host
  double stall_share = 1e-3;  // of the probes that meet a stall of the machine of 3 ms on average
  double seconds = 8;
  double measure_from_s = 2;
  bool steer = true;
  bool look_again = false;     // at both candidates just before a move (best_of_two.h)
  bool marks = true;           // probes are told to be marked; false: peers of before, or a fabric that clears the bits
  std::vector<int> placement;  // spine of each flow at the start; empty = random (ECMP)
  // Further flows on spine 0, dealt to hosts in turn: those that send mouse_bps, and those that stop at ended_s and
  // stay known. No result counts them.
  int mice = 0;
  double mouse_bps = 250e3;
  int ended = 0;
  double ended_s = 0.2;
  // Jobs with barriers: the flows of host h are of job h modulo jobs, each sends round_bytes, and waits until all of
  // its job have. The run ends with the last round. 0: flows send for ever.
  int jobs = 0;
  double round_bytes = 0;
  int rounds = 10;
  uint64_t seed = 1;
  // For recordings: the host, what it starts with; what it saw and decided, and its state afterwards.
  std::function<void(int, const ContentionState&)> on_start;
  std::function<void(int, const Observation&, const Decision&, const ContentionState&)> on_window;
};

struct SimResult {
  std::vector<double> goodput_bps;  // per flow, from measure_from_s on
  double slowest_bps = 0;
  int moves = 0;       // all hosts, whole run
  int turned = 0;      // of them, those that went to the second candidate
  int late_moves = 0;  // in the second half
  int findings_full = 0;
  std::vector<int> final_count;  // flows per spine at the end
  double balanced_at_s = -1;     // from when on the counts differ by at most one, to the end; −1 = not
  double done_s = -1;            // when the last job had done its rounds; −1 = not, or there are none
};

SimResult Simulate(const SimSpec& spec, const ContentionRules& rules);

}  // namespace cw::control
