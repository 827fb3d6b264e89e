// SPDX-License-Identifier: Apache-2.0
//
// Packets too large for a path, or for a NIC: each path is asked with a datagram as large as the largest RoCE packet
// that both NICs' MTUs have room for, whether it arrives (control/path_size.h has the rule), and the MTUs of both NICs
// are compared with each other and with what queue pairs send. Both ends tell theirs. Peers that do not answer
// questions about sizes, those of earlier releases, are asked nothing, and so nothing is said of them; nor of NICs
// whose probes go by verbs. Times: CLOCK_MONOTONIC, ns. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/probe/hops.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/messages.h"

namespace cw::agent {

class SizeCheck {
 public:
  static constexpr int64_t kIdleNs = 10'000'000'000;   // between checks of a path of a pair that carries no data
  static constexpr int64_t kAgainNs = 10'000'000'000;  // a peer that never answered is asked for its MTU
  static constexpr int64_t kHeardNs = 60'000'000'000;  // what a peer said longer ago is not known any more
  static constexpr int64_t kLateNs = 250'000'000;      // between two steps: answers may not have been read
  static constexpr int kPerStep = 5;                   // checks that begin
  static constexpr int kPacketsPerStep = 60;           // of the rounds that follow, in all

  struct Asks {
    // A question to the peer by this port, padded to so many bytes (Engine::SendPadded).
    std::function<absl::Status(uint32_t pair, const probe::SizeReport& question, uint16_t port)> send;
    std::function<absl::StatusOr<uint32_t>(const std::string& device)> mtu_of;
    std::function<const probe::Hops*(uint32_t pair, uint8_t slot)> hops;  // null: no path there, or not traced
    std::string host;                                                     // this one's name
  };

  // All of them outlive it.
  SizeCheck(const PairTable& pairs, NicTable& nics, const FlowBook& flows, const probe::Mesh& mesh, PeerMail& mail,
            EventSink& events, Asks asks)
      : pairs_(pairs), nics_(nics), flows_(flows), mesh_(mesh), mail_(mail), events_(events), asks_(std::move(asks)) {}

  void Step(int64_t now_ns);        // some ten times a second
  void LookAtMtus(int64_t now_ns);  // once a second
  void OnReport(PairState& pair, const probe::SizeReport& report, int64_t now_ns);
  static void Hurry(PairState& pair, uint8_t slot, int64_t now_ns);  // data on it is not acknowledged

 private:
  uint32_t FullSize(const PairState& pair, const NicState& nic) const;
  struct Turn {
    bool late = false;   // nobody looked for a while
    bool quick = false;  // every two seconds, not as of an idle pair
  };
  void SendMtu(const PairState& pair, const NicState& nic);
  void Forget(PairState& pair);
  static bool IsLimited(const PairState& pair);
  void StepSlot(PairState& pair, const NicState& nic, uint8_t slot, Turn turn, int64_t now_ns);
  void Ask(PairState& pair, const NicState& nic, uint8_t slot, int64_t now_ns);
  std::string FirstSuspect(const PairState& pair, uint8_t slot) const;
  void LogChange(PairState& pair, uint8_t slot);
  void LogMtu(PairState& pair, const NicState& nic, std::string trouble);
  std::string MtuTrouble(const PairState& pair, const NicState& nic, uint32_t most) const;

  const PairTable& pairs_;
  NicTable& nics_;
  const FlowBook& flows_;
  const probe::Mesh& mesh_;
  PeerMail& mail_;
  EventSink& events_;
  const Asks asks_;
  int64_t stepped_ns_ = 0;
  uint32_t next_pair_ = 0;  // whose turn it is
  int checks_left_ = 0, packets_left_ = 0;
};

}  // namespace cw::agent
