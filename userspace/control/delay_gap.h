// SPDX-License-Identifier: Apache-2.0
//
// In band against out of band: a queue pair's own packets beside the probes on its path. Both are stamped at the same
// places and measured against the same clocks, so that the clocks' error falls out of the difference. What may differ
// for good reason is allowed for: larger packets take longer onto each wire, and packets meet the queue that their own
// burst makes, which probes meet, too, as long as it lasts for a hundredth of the time.
//
// A gap is there while the flow's median is above the 99th percentile of the probes on its path, by at least the rules'
// floor and by half of the flow's own spread, beyond what its larger packets explain. It is told when it has lasted,
// and is over when it has been away as long.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/evidence.h"
#include "userspace/model/flow.h"

namespace cw::control {

struct GapRules {
  uint64_t flow_samples = 20;  // at least, within the window that is looked at; fewer say nothing
  uint64_t mesh_samples = 50;
  double floor_ns = 5'000;
  double own_spread = 0.5;  // times the flow's interquartile range
  int64_t lasting_ns = 10'000'000'000;
  int64_t over_ns = 10'000'000'000;
};

// What both are like over the same window (10 s), one way from us.
struct GapLook {
  uint64_t flow_samples = 0;
  double flow_p50_ns = 0;
  double flow_iqr_ns = 0;  // 75th less 25th percentile
  uint64_t mesh_samples = 0;
  double mesh_p50_ns = 0;
  double mesh_p99_ns = 0;
  double larger_ns = 0;  // what its larger packets need more on all wires of the path
};

// What else is known of the flow, for the likely cause. The first that holds is it.
struct GapClues {
  uint8_t flow_dscp = 0, probe_dscp = 0;
  bool ports_choose = true;  // false: the fabric hashes on more than ports, or sprays
  bool paused = false;       // its path was told paused within that window
  bool slow_receiver = false;
  bool slow_sender = false;
};

enum class GapCause { kNone, kPath, kClass, kPauses, kReceiver, kSender, kUnknown };
const char* GapCauseName(GapCause cause);  // "", path, class, pauses, receiver, sender, unknown

struct GapVerdict {
  bool known = false;    // both were measured
  double spread_ns = 0;  // that a gap has to exceed, above the probes' median
  int64_t since_ns = 0;  // when the gap began; 0: there is none
  bool finding = false;  // it has lasted
  GapCause cause = GapCause::kNone;
  std::string text;  // one sentence; "" without a finding
  Evidence evidence;
  GapLook look;
};

class GapWatch {
 public:
  explicit GapWatch(const GapRules& rules = {}) : rules_(rules) {}

  // Once a second or so for each flow. true: a finding began or ended (Of() tells which).
  bool Step(const FlowKey& flow, int64_t now_ns, const GapLook& look, const GapClues& clues);
  // Flows that were not stepped since the last call are forgotten.
  void ForgetOthers();
  // nullptr: nothing is known of it.
  const GapVerdict* Of(const FlowKey& flow) const;

 private:
  struct Watched {
    GapVerdict verdict;
    int64_t away_ns = 0;  // since when the gap of a finding has been away; 0: it is there
    bool seen = false;
  };
  GapRules rules_;
  absl::flat_hash_map<FlowKey, Watched> flows_;
};

// Exposed for tests and for those who explain: how much above the probes' median a flow's has to be.
double GapSpreadNs(const GapRules& rules, const GapLook& look);
GapCause LikelyCause(const GapClues& clues);

}  // namespace cw::control
