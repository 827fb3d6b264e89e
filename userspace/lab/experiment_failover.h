// SPDX-License-Identifier: Apache-2.0
//
// How long flows stand still when a spine silently stops forwarding, over many cuts on one testbed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/frr.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

enum class CutKind {
  kForward,   // the data direction drops everything
  kReverse,   // the acknowledgements' direction does
  kBoth,      // both do
  kDataOnly,  // the data direction drops RoCE data, and lets routing protocols and probes pass
  kShare,     // the data direction drops a share of all packets: drop_share
  kPause,     // the data direction holds back the class of RoCE traffic for `hold`, and loses nothing
  kStorm,     // it does so again and again, for times between pause_min and pause_max, with breaks alike, for `hold`
  kLinkDown,  // the link to the receiver's leaf loses its carrier, at both ends
};

struct FailoverSpec {
  TestbedSpec testbed;
  std::optional<FrrSpec> frr;                                // routes by BGP and BFD instead of static ones
  int cuts = 30;
  CutKind kind = CutKind::kForward;
  double drop_share = 0;                                     // kind kShare: 0–1
  int flows = 8;                                             // between host 0 and the first host of leaf 1
  absl::Duration packet_interval = absl::Microseconds(500);  // of each measured flow
  // One short message at a time, so that each cut kills the end of one and nothing follows it; a transport timer of
  // seconds, as NCCL's settings make it.
  bool tails = false;
  double background_share = 0;   // of every uplink's rate, filled by further flows with ECN-driven rates
  absl::Duration hold = absl::Milliseconds(400);   // how long a cut lasts
  absl::Duration settle = absl::Milliseconds(800); // between cuts
  absl::Duration pause_min = absl::Milliseconds(1), pause_max = absl::Milliseconds(20);  // kStorm
  uint64_t seed = 1;
};

struct CutResult {
  double at_s = 0;   // since the testbed's origin
  int spine = 0;
  int affected = 0;                  // flows on the cut path
  std::vector<double> recovery_ms;   // per affected flow that recovered while the cut lasted: cut → next delivered packet
  int not_recovered = 0;             // affected flows that stood still (kShare: stayed) until the cut was repaired
  std::vector<double> left_ms;       // kShare, in place of recovery_ms: cut → the flow's last packet on that link
  double stall_ms = 0;               // longest time without an acknowledgement of a measured flow that began while it lasted
};

struct FailoverResult {
  std::vector<CutResult> cuts;
  std::vector<double> stall_ms;   // longest stretch without progress, per measured flow
  int flows = 0;
  int flows_lost = 0;             // queue pairs whose retries ran out
  int wrong_verdicts = 0;         // slots declared dead on links that were whole
  int paused_verdicts = 0;        // times that a path was told to be paused
  uint64_t moves = 0;             // of flows off silent paths
  uint64_t resends_asked = 0;     // by the agents, of what died with a path
  uint64_t icrc_errors = 0;
  uint64_t data_icrc_checked = 0;
  double load_share = 0;          // of the uplinks, measured, mean
  Phase phase;                    // for the report
  std::vector<double> AllRecoveries() const;
  std::vector<double> AllLeft() const;
  std::vector<double> CutStalls() const;
  int NotRecovered() const;
};

absl::StatusOr<FailoverResult> RunFailover(const FailoverSpec& spec);

// q in [0, 1]; nearest rank; 0 for an empty vector.
double Quantile(std::vector<double> values, double q);

}  // namespace cw::lab
