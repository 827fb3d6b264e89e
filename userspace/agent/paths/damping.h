// SPDX-License-Identifier: Apache-2.0
//
// Paths that no flow shall be put on: those that flap, or whose link does (control/damping.h), that lose packets, that
// an operator drains, and all of pairs whose flows do not take the probes' paths. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

// Dead paths are the kernel's to judge; new ones have not answered yet.
uint16_t JudgedSlots(const cw_pair& pair);

class Damping {
 public:
  // blocked: those of a pair are others now. All of them outlive it.
  Damping(const PairTable& pairs, const probe::Mesh& mesh, const LinkFlaps& links, const Clock& monotonic,
          std::function<void(uint32_t pair, uint16_t slots)> blocked)
      : pairs_(pairs), mesh_(mesh), links_(links), monotonic_(monotonic), blocked_(std::move(blocked)) {}

  void Update(PairState& pair);  // a path that flaps is kept out until its penalty has decayed
  void UpdateAll();
  void Publish(PairState& pair);  // damped, drained and lossy ones

 private:
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  const LinkFlaps& links_;
  const Clock& monotonic_;
  const std::function<void(uint32_t pair, uint16_t slots)> blocked_;
};

}  // namespace cw::agent
