// SPDX-License-Identifier: Apache-2.0
//
// Probes that were answered: what each says of its pair's clock, of its path's delay in both directions, and of who
// heard what. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "maps/abi.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/ring_recorder.h"
#include "userspace/agent/vitals.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/pair_store.h"

namespace cw::agent {

class ProbeNews {
 public:
  struct Asks {
    std::function<bool(const PairState& pair)> by_verbs;  // its probes go by verbs
    std::function<void(uint32_t pair, uint8_t slot)> answered;
    std::function<void(const PairState& pair, SlotState& slot, const cw_ev_probe& probe)> of_silent;  // path
    // One way and forward, local ns; only where the clocks are known to each other.
    std::function<void(uint32_t pair, uint8_t slot, int64_t sent_ns, int64_t delay_ns)> delayed;
    std::function<RingRecorder*()> ring;  // null: nothing is recorded
  };

  // All of them outlive it.
  ProbeNews(const PairTable& pairs, probe::PairStore& store, const probe::Mesh& mesh, Vitals& vitals,
            const Clock& monotonic, Asks asks)
      : pairs_(pairs), store_(store), mesh_(mesh), vitals_(vitals), monotonic_(monotonic), asks_(std::move(asks)) {}

  void OnProbe(const cw_ev_probe& probe);
  // Probes of the pair's paths that were sent since the call before.
  void CountSent(PairState& pair, int64_t now_ns);
  // By the programs' records, so that it holds whether or not the ring was read. True: a path began or ended to be
  // silent.
  bool LookForSilence(PairState& pair, int64_t interval_ns, int64_t now_ns);

 private:
  void Settle(PairState& pair, const control::ProbeFates::Round& round, int64_t now_ns);
  void AddFates(PairState& pair, uint8_t slot, int64_t now_ns, uint32_t known, uint32_t lost);

  const PairTable& pairs_;
  probe::PairStore& store_;
  const probe::Mesh& mesh_;
  Vitals& vitals_;
  const Clock& monotonic_;
  const Asks asks_;
};

}  // namespace cw::agent
