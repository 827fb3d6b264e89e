// SPDX-License-Identifier: Apache-2.0
//
// A pair of NICs as one host's agent has it: rounds of probes over simulated links go through the kernel's rule
// (bpf/liveness.h), what became of them through the agent's (control/), and what is told is what the agent would tell
// (agent/views/path_seen.h). Nothing of it is filled by hand. Replies ride on the peer's slot of number slot + round.
// Where nothing can change, rounds are only counted. Pure: time comes in. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bpf/liveness.h"
#include "tests/sim/fleet_fabric.h"
#include "userspace/control/pair_pause.h"
#include "userspace/control/path_silence.h"
#include "userspace/control/pause.h"
#include "userspace/control/probe_fates.h"
#include "userspace/probe/end_proof.h"
#include "userspace/telemetry/path_delay.h"
#include "userspace/uplink/seen.h"

namespace cw::sim {

class ProbePair {
 public:
  static constexpr int64_t kIntervalNs = 100'000'000;  // of rounds, and of Tick

  ProbePair(FleetFabric& fabric, Random& random, std::vector<FleetFabric::Way> ways, uplink::PathSeen names);
  void SetPeer(ProbePair* peer) { peer_ = peer; }

  void Boot(int64_t now_ns);  // the host is new: empty records
  // A new agent over the records that there are.
  void StartAgent(int64_t now_ns, uint32_t session);
  void Begin(int64_t now_ns);  // a round of the first ones; where all is well nothing is new about them
  // Looks at the fabric: true where something of it is another thing now, and rounds have to be run.
  bool Look(int64_t now_ns, bool peer_answers);
  void Wake(int64_t now_ns);  // before Look, of what was only counted
  // An interval passes. True: there is news of paths, which is reported soon.
  bool Tick(int64_t now_ns);
  // Nothing but time passes: no Tick is needed.
  bool IsCalm(int64_t now_ns) const;
  void CatchUp(int64_t now_ns);                     // of a calm one
  void Rest(int64_t now_ns) { last_ns_ = now_ns; }  // nobody probed until now
  // What hops are is looked at anew. True: they are others. anew: with another table of paths.
  bool Trace(bool anew);
  int64_t retrace_ns() const { return retrace_ns_; }
  void AppendTo(std::vector<uplink::PathSeen>& out, int64_t now_ns, int seconds);

  const std::vector<FleetFabric::Way>& ways() const { return ways_; }
  bool Crosses(int edge) const;

 private:
  struct Slot {
    uint16_t port = 0;
    double pass = 1, queue_ns = 0;  // of the way there, as of the last Look
    bool paused = false;
    std::vector<Addr> hops;
    probe::EndProof end_proof;
    telemetry::PathDelay forward, reverse;
    std::optional<control::PauseWatch> watch;
    uint32_t counted_round = 0;
    bool Arrives() const { return pass >= 1 && !paused; }
    bool IsSure() const { return pass >= 1 || pass <= 0 || paused; }
  };
  struct Back {
    uint32_t slot;
    uint64_t t2;
    std::array<uint16_t, CW_ROUNDS> bitmap;
  };

  bool Survives(const Slot& slot) { return !slot.paused && (slot.pass >= 1 || Chance(random_) < slot.pass); }
  void Round(int64_t now_ns);
  void Take(const Back& back, uint32_t round, int64_t now_ns);
  void CountRounds(int64_t now_ns, uint32_t rounds);
  bool AnyReply() const;
  bool Settled(int64_t now_ns) const;
  bool AskClasses(int64_t now_ns);
  void CountLost(int64_t now_ns);
  bool StepSilence(int64_t now_ns);
  void AddDelay(Slot& slot, int64_t now_ns);
  void News(int64_t now_ns);

  FleetFabric& fabric_;
  Random& random_;
  const std::vector<FleetFabric::Way> ways_;
  const uplink::PathSeen names_;
  ProbePair* peer_ = nullptr;
  cw_pair pair_ = {};
  cw_probe_tx tx_ = {};
  uint32_t session_ = 0, round_ = 0;
  control::ProbeFates fates_;
  control::PathSilence silence_;
  control::PairPause pause_;
  uint32_t token_ = 0;  // of the newest question
  std::vector<Slot> slots_;
  std::set<std::vector<Addr>> table_;  // of whole ways
  bool peer_answers_ = true, news_ = false;
  int64_t last_ns_ = 0, changed_ns_ = 0, retrace_ns_ = 0, ticks_ = 0;
};

}  // namespace cw::sim
