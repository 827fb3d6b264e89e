// SPDX-License-Identifier: Apache-2.0
//
// A flow-level simulation of a three-tier fat tree (M. Al-Fares et al., SIGCOMM 2008) of k ports: k³/4 NICs, every link
// of the same rate, max-min sharing (D. Bertsekas, R. Gallager, "Data Networks", §6.5.2). Every NIC runs the production
// rule of contention (control::DecideMoves) on what its probes would show, at the cadence that the production code
// (probe::Cadence) grants them. One thread; the same seed gives the same result.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::sim {

struct FabricSimSpec {
  int ports = 8;           // of a switch, even; k³/4 NICs
  int flows_per_nic = 1;   // to one other NIC, each NIC being the target of one
  double sending = 1;      // share of the NICs that send
  int slots = 12;          // paths that an agent knows of a pair, drawn from all
  double window_s = 0.01;  // between two decisions of a host
  double seconds = 1;
  int phases = 2;  // groups of hosts that decide one after another within a window
  double link_bps = 400e9;
  double packet_bits = 4228 * 8;
  double budget_pps = 10'000;  // probes of a host
  bool steer = true;
  uint64_t seed = 1;
};

struct WindowResult {
  double mean = 0, p1 = 0, least = 0;  // rates of flows, as shares of what each could have at best
  int moves = 0;
  int herd = 0;  // the most flows that came onto one link
};

struct FabricSimResult {
  int nics = 0;
  int flows = 0;
  std::vector<WindowResult> windows;  // [0]: as placed by hashing
  double probes_per_s = 0;            // of one host
  double probe_share = 0;             // of its link
  // Seconds until the mean stays within 1 % of the last quarter's.
  double SettledS(double window_s) const;
  int Moves() const;
  double LateMovesPerFlowS(double window_s) const;  // in the last quarter
};

FabricSimResult SimulateFabric(const FabricSimSpec& spec);

struct RecoverySpec {
  int active_peers = 8;
  int slots = 16;  // per peer
  double budget_pps = 10'000;
  int misses = 3;  // config liveness.misses
  double rtt_s = 20e-6;
  int faults = 2000;
  uint64_t seed = 1;
};

struct RecoveryResult {
  double interval_s = 0;  // of the pair's rounds
  double p50_s = 0, p99_s = 0, most_s = 0;
};

// How long a path is dead until the liveness rule says so: the rounds of the pair as the production cadence sends them,
// the verdict with the reply that proves the last miss. Without data as a witness, which is sooner where there is any.
RecoveryResult SimulateRecovery(const RecoverySpec& spec);

}  // namespace cw::sim
