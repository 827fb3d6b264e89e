// SPDX-License-Identifier: Apache-2.0
//
// Are our programs still where they were attached, and do they see what leaves? Other software, and people, remove a
// queueing discipline, a link or a pin, or put a program before ours that ends a packet's path. Asked of the kernel
// each second; what is missing is attached again, as long as nobody else is in its place.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/dataplane/hook_look.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class Hooks {
 public:
  static constexpr uint32_t kUnseenRounds = 4;  // that lag behind; one or two may be on their path to the program

  // Of one pair of the NIC that is probed: the newest round that was sent, and the newest that our program saw leave.
  struct Rounds {
    uint32_t sent = 0, seen = 0;
  };
  struct Dependencies {
    std::function<absl::StatusOr<dataplane::HookLook>(const NicState& nic)> look;
    // What is there stays. Unavailable: not now, for the reason given; it is tried again at each look.
    std::function<absl::StatusOr<dataplane::AttachInfo>(const NicState& nic)> attach;
    std::function<std::vector<std::string>(const NicState& nic)> others;  // programs that are not ours
    std::function<std::vector<Rounds>(const NicState& nic)> rounds;
    std::function<absl::StatusOr<std::vector<std::string>>()> restore_pins;  // names that were gone
    std::function<bool()> off;                                               // the mode: what is detached stays so
  };

  // All of them outlive it.
  Hooks(NicTable& nics, const Clock& monotonic, EventSink& events, Dependencies dependencies)
      : nics_(nics), monotonic_(monotonic), events_(events), dependencies_(std::move(dependencies)) {}

  void LookAtAll();  // once a second

 private:
  struct Watched {
    std::deque<int64_t> xdp_repairs_ns, tc_repairs_ns;  // of the last ten minutes
    bool waits = false;                                 // for a moment without queue pairs
    int unseen_looks = 0;                               // in a row without a probe that was seen
  };

  void LookAt(NicState& nic);
  void Repair(NicState& nic, const dataplane::HookLook& look);
  void TryRepair(NicState& nic, const dataplane::HookLook& look, Watched& watched);
  bool MayRepair(std::deque<int64_t>& repairs) const;
  std::string Unseen(const NicState& nic);
  void SetTrouble(NicState& nic, const std::string& trouble);
  void LookAtPins();
  void Log(const NicState& nic, telemetry::Severity severity, std::string text);

  NicTable& nics_;
  const Clock& monotonic_;
  EventSink& events_;
  const Dependencies dependencies_;
  std::map<uint32_t, Watched> watched_;  // by ifindex
  bool pins_fail_ = false;
};

}  // namespace cw::agent
