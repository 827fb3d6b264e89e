// SPDX-License-Identifier: Apache-2.0
//
// What is left of failover where flows do not take the paths of the probes with their ports, because switches hash on
// ports and on something else besides: another port by chance (control/reroll.h).
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "userspace/agent/counter_sink.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/timers.h"
#include "userspace/control/reroll.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class Rerolls {
 public:
  struct Asks {
    May allowed;
    std::function<std::optional<probe::Hashing>(uint32_t pair)> hashing;  // nullopt: not known yet
    std::function<void(const FlowKey& flow)> rolled;                      // its packets are dead
  };

  // All of them outlive it. seed: of the dice.
  Rerolls(const PairTable& pairs, FlowRecords& flows, const probe::Mesh& mesh, const PeerNames& names,
          const Clock& monotonic, Timers& timers, EventSink& events, uint32_t seed, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        mesh_(mesh),
        names_(names),
        monotonic_(monotonic),
        timers_(timers),
        events_(events),
        random_(seed),
        asks_(std::move(asks)) {}

  void OnPathLost(const PathLost& lost);
  void TellCounts(const CounterSink& add) const {
    add("flows_rerolled", rolls_, "flows given another port by chance, where switches do not hash on ports alone");
  }

 private:
  bool MayReroll(const PairState& pair, int64_t now_ns) const;
  void Tick();
  void Reroll(const FlowKey& key, const cw_tx_flow& flow, int64_t now_ns);

  const PairTable& pairs_;
  FlowRecords& flows_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  const Clock& monotonic_;
  Timers& timers_;
  EventSink& events_;
  std::mt19937 random_;
  const Asks asks_;

  absl::flat_hash_map<FlowKey, control::RerollWatch> watched_;
  bool ticking_ = false;
  uint64_t rolls_ = 0;
};

}  // namespace cw::agent
