// SPDX-License-Identifier: Apache-2.0
//
// How long flows stand still when a spine or a host fails in one of many ways, over many cuts on one testbed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/failover_fault.h"
#include "userspace/lab/frr.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

// What has happened to the sending host's agent for `agent_away` when a spine is cut. It is back before the next cut.
enum class AgentFault { kNone, kKilled, kStopped };

struct FailoverSpec {
  TestbedSpec testbed;
  std::optional<FrrSpec> frr;  // routes by BGP and BFD instead of static ones
  int cuts = 30;
  CutKind kind = CutKind::kForward;
  double drop_share = 0;  // kShare, kCorrupt: 0–1
  AgentFault agent_fault = AgentFault::kNone;
  absl::Duration agent_away = absl::Seconds(3);
  int flows = 8;                                             // between host 0 and the first host of leaf 1
  absl::Duration packet_interval = absl::Microseconds(500);  // of each measured flow
  uint8_t timeout = 14;  // of the measured queue pairs: 4.096 us * 2^timeout, 67 ms; NCCL's 20 is 4.3 s
  // One short message at a time, so that each cut kills the end of one and nothing follows it.
  bool tails = false;
  double background_share = 0;  // of every uplink's rate, filled by further flows with ECN-driven rates
  absl::Duration hold = absl::Milliseconds(400);                                         // how long a cut lasts
  absl::Duration settle = absl::Milliseconds(800);                                       // between cuts
  absl::Duration pause_min = absl::Milliseconds(1), pause_max = absl::Milliseconds(20);  // kStorm
  uint64_t seed = 1;
};

// What the machine must not have stood still for, about a cut, for the cut's figures to be those of the system.
constexpr double kDisturbedMs = 1;
constexpr absl::Duration kRecoveryWindow = absl::Milliseconds(20);

struct CutResult {
  double at_s = 0;   // since the testbed's origin
  int spine = 0;     // −1: the fault is a host's
  int affected = 0;  // flows on the cut path
  // Per affected flow that recovered while the cut lasted: cut → next delivered packet. kShare, kCorrupt, kSlow: cut →
  // the flow's last packet on that link. kReboot: its longest stall, by the carrier's loss or by what was not
  // forwarded.
  std::vector<double> recovery_ms;
  int not_recovered =
      0;                // affected flows that stood still (kShare, kCorrupt, kSlow: stayed) until the cut was repaired
  double stall_ms = 0;  // the longest stall of an affected flow that began while the cut lasted
  int still_on_path =
      0;  // not of pauses: affected flows that still sent there after kStillAfter, or when the cut was repaired before
  bool told_as_peer = false;  // kPeer…: by then the sender's agent knew that the peer is silent
  double paused_ms = 0;       // kPause: from the pause's beginning to its end
  double held_ms = 0;  // … and to its end from the port's last packet of a queue pair, by the switch's own count
  double machine_stall_ms = 0;  // the longest while that the machine stood still, from the cut to kRecoveryWindow later
  bool Disturbed() const { return machine_stall_ms > kDisturbedMs; }
};
constexpr absl::Duration kStillAfter = absl::Seconds(1);

struct FailoverResult {
  std::vector<CutResult> cuts;
  std::string ended_early;            // why there are fewer cuts than asked for; empty: there are not
  std::vector<double> flow_stall_ms;  // longest stretch without progress, per measured flow, over the whole run
  int flows = 0;
  int flows_lost = 0;  // queue pairs whose retries ran out
  // Paths told dead or lossy over links that were whole.
  int wrong_verdicts = 0;
  // What the agents' kernels did, told or not: all deaths of path slots, those over links that were whole, and those of
  // which nobody knows the path.
  uint64_t kernel_deaths = 0, deaths_elsewhere = 0, deaths_untraced = 0;
  // Flows that a kernel moved for want of answers while no agent probed; those of them while nothing was cut.
  uint64_t moves_blind = 0, moves_without_fault = 0;
  int paused_verdicts = 0;     // times that a path was told to be paused
  uint64_t moves = 0;          // of flows off silent paths
  uint64_t resends_asked = 0;  // by the agents, of what died with a path
  uint64_t icrc_errors = 0;
  uint64_t data_icrc_checked = 0;
  double load_share = 0;  // of the uplinks, measured, mean
  Phase phase;            // for the report
  Chart goodput;          // of each measured queue pair
  // undisturbed: of the cuts about which the machine ran on, whatever came of them.
  std::vector<double> AllRecoveries(bool undisturbed = false) const;
  std::vector<double> CutStalls(bool undisturbed = false) const;
  int Disturbed() const;
  int NotRecovered() const;
  int StillOnPath() const;
  int ToldAsPeer() const;  // cuts
};

// Both kinds of paths called dead over links that were whole: what agents told, and what kernels left, told or not (the
// report marks each as WRONG).
inline constexpr char kWrongTitle[] = "called dead though whole: told; by kernels";
std::string WrongText(const FailoverResult& result);

// Why a run ends when no queue pair is left to be cut. `lost` of `flows` have died. Pure.
std::string NothingLeft(int cuts, int flows, int lost);

// A system that loses all queue pairs ends the run early; what was measured until then is the result. Internal: there
// was nothing to cut from the beginning, though queue pairs lived, or no routing but the lab's own could have lost
// them.
absl::StatusOr<FailoverResult> RunFailover(const FailoverSpec& spec);

using bench::Quantile;

}  // namespace cw::lab
