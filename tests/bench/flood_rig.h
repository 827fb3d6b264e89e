// SPDX-License-Identifier: Apache-2.0
//
// Two hosts of one leaf, both with the product, that are sent the same data and the same flood. On one of them a
// program in front of the product's drops the flood and does nothing else: all that differs is what a frame of the
// flood costs. Links are not shaped, and one processor has to do it all: both ends of the data, every hop, the flood
// and what the programs make of it. So what the flood takes is what the data lacks. Thread: one, which stays on that
// processor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/flood_frames.h"
#include "tests/bench/flood_sender.h"
#include "tests/bench/pinned_state.h"
#include "userspace/lab/testbed.h"

struct flood_drop;  // its skeleton

namespace cw::bench {

enum class Target { kProduct, kDrop };
inline constexpr Target kTargets[] = {Target::kProduct, Target::kDrop};

// Data alone and beside the flood, in slices of a sixth of a second one after the other, since the machine's speed
// changes within seconds.
struct Turn {
  double quiet_mbps = 0, flooded_mbps = 0;  // of payload, delivered in order
  double flood_pps = 0;                     // sent
  double idle_percent = 0;                  // of the processor, without the flood: what the flood takes for nothing
  int died = 0;                             // queue pairs
  double KeptPercent() const { return quiet_mbps == 0 ? 0 : 100 * flooded_mbps / quiet_mbps; }
};

// What a flood may not change at the host with the product.
struct Books {
  PinnedState victim, peer;
  std::map<std::string, MapFill> fill;  // of the victim
  uint64_t flooded = 0;                 // frames sent to it
};

class FloodRig {
 public:
  static absl::StatusOr<std::unique_ptr<FloodRig>> Up();
  ~FloodRig();

  const GenuineProbes& genuine() const { return genuine_; }
  // pps 0: as many as the machine can.
  absl::StatusOr<Turn> Run(Target target, const std::string& frame, double pps);
  absl::StatusOr<Books> Read() const;
  uint64_t DroppedByPeerProgram() const;
  uint64_t FloodedPeerProgram() const { return to_drop_->sent(); }

 private:
  FloodRig() = default;
  absl::Status TakeAgentOff(int host);
  absl::Status PutGate();
  absl::Status CatchProbes();
  FloodSender& SenderTo(Target target) { return target == Target::kProduct ? *to_product_ : *to_drop_; }

  std::unique_ptr<lab::Testbed> testbed_;
  flood_drop* drop_ = nullptr;
  GenuineProbes genuine_;
  std::unique_ptr<FloodSender> to_product_, to_drop_;
};

}  // namespace cw::bench
