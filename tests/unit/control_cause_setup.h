// SPDX-License-Identifier: Apache-2.0
//
// What a scenario of the simulated fabric consists of (control_cause_fabric.h), and how a seed draws one.
#pragma once

#include <cstdint>
#include <vector>

#include "userspace/control/causes.h"

namespace cw::control::cause_sim {

constexpr int kLeaves = 3, kHostsPerLeaf = 4, kHosts = kLeaves * kHostsPerLeaf;

constexpr double kPacketBits = 4228 * 8;

struct FlowSpec {
  int src = 0, dst = 0, slot = 0;
  double demand = 1;  // share of the line
  int burst = 1;      // packets that the application brings at once, where the demand is below 1
  int window = 128;
  int ack_every = 4;
  int ack_slot = 0;
  bool from_injection = false;  // starts then
};

// Everything that a seed decides, before and after the injection.
struct Setup {
  double line_bps = 400e6;
  int spines = 4;
  double probe_s = 2e-3;
  std::vector<FlowSpec> flows;  // 0: the victim
  double slow_demand = 1;       // the victim's from the injection on
  int slow_burst = 1;
  double serve_share = 0;  // the receiver's host handles this share of the line; 0 = all
  int rnr_message = 0;     // packets per posted buffer; 0 = it is always ready
  double rnr_timer_s = 0;
  double stall_every_s = 0, stall_s = 0;
  int fault_spine = -1;
  bool fault_up = false;                     // leaf to spine, else spine to leaf
  double fault_forward = 0, fault_back = 0;  // share lost
  double late_share = 0, late_s = 0;         // packets on that link that others overtake, and by how much they may
  double cnp_interval_s = 1e-3;              // of receivers, at least; senders' timers go with it
  bool nic_shared = false;                   // by two flows of the victim's host
  int windows = 3;                           // after the injection
};

// A victim, background flows, and what makes the victim slow from the injection on.
Setup DrawSetup(Cause injected, uint64_t seed);

}  // namespace cw::control::cause_sim
