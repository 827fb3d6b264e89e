// SPDX-License-Identifier: Apache-2.0
//
// Agents say to each other which of their NICs they do not measure: somebody detached the programs, or something ends
// the packets' path before them. Without that word the other end hears nothing from such a NIC and calls a healthy
// host silent. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <set>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"

namespace cw::agent {

class BlindNotes {
 public:
  static constexpr size_t kMostPerLook = 128;  // pairs; PairState::kBlindHoldsNs covers 3,840 of them

  // All of them outlive it.
  BlindNotes(PairTable& pairs, const NicTable& nics, PeerMail& mail, EventSink& events)
      : pairs_(pairs), nics_(nics), mail_(mail), events_(events) {}

  void Send();  // once a second: of our own NICs
  void OnNote(const PairState& via, const probe::NicMeasures& note, int64_t now_ns);
  void Forget(uint32_t pair) { noted_.erase(pair); }

 private:
  bool IsBlind(const PairState& pair) const;  // our end of it
  void Send(const PairState& pair, bool measures);
  void Log(const PairState& pair, bool measures);

  PairTable& pairs_;
  const NicTable& nics_;
  PeerMail& mail_;
  EventSink& events_;
  std::set<uint32_t> noted_;  // pairs whose other end heard that our NIC is blind
  uint32_t last_ = 0;         // pair that was served last
};

}  // namespace cw::agent
