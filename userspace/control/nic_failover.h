// SPDX-License-Identifier: Apache-2.0
//
// NIC failover: which pairs of NICs are out of reach, and which other pair of the same two hosts carries their packets
// (bpf/carry.h). Two agents agree on it by reports: a packet is sent the other way only once the peer has said that it
// puts it back. The host whose name is smaller chooses the carrier; the other one only says what it misses. Both must
// have the same two names: `host` is what the peer's NicPair::peer says, the name in the peer files (config::OwnName).
//
// A pair is silent when its NIC's link is down, or when it does not answer probes for `silence` while another pair to
// the same peer does: so neither a dead peer nor a dead agent looks like a dead NIC. It is back after it has answered
// for a hold time without a pause, which doubles with each loss within the last ten minutes. A pair whose local NIC is
// drained is carried like a silent one, carries only what nothing else can, and goes back at once when that is over.
// A NIC that could not send the pair's largest packets carries nothing of it: they would be lost without a word.
//
// What was agreed goes on while the peer's agent is not heard, since its programs do; but not for ever, since a peer
// that rebooted or whose programs were taken away puts nothing back. So an agreement ends when the peer says otherwise
// (who is told of a rule that it does not have answers), and when a new session of the peer does not say the same
// within `confirm`. Nothing leaves by it, though what arrives is put back, when no report came for `unheard` and either
// the pair itself is good or its carrier did not answer for as long. Pure: time comes in (any monotonic clock). One
// thread per object.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/model/flow.h"
#include "userspace/model/nic_report.h"

namespace cw::control {

struct NicFailoverRules {
  int64_t silence_ns = 60'000'000;  // at least; and six intervals of probes
  int64_t hold_ns = 2'000'000'000;  // of the first return
  int64_t longest_hold_ns = 60'000'000'000;
  int64_t flap_window_ns = 600'000'000'000;
  int64_t report_ns = 100'000'000;    // between reports of what has not changed
  int64_t linger_ns = 5'000'000'000;  // packets under way are put back so long after the end
  int64_t confirm_ns = 4'000'000'000;
  int64_t unheard_ns = 5'000'000'000;
};

// One pair as the host sees it now.
struct NicPair {
  uint32_t index = 0;
  PairKey key;
  std::string peer;           // its host
  bool link_up = true;        // of the local NIC
  bool drained = false;       // an operator wants the local NIC free
  bool held = false;          // its packets stay with their own NIC, whatever befalls it
  bool can_carry = true;      // no queue pair there has a QPN that looks like a tag
  uint32_t mtu = 0;           // of the local NIC, bytes; 0: not known
  int64_t interval_ns = 0;    // of probe rounds
  int64_t last_reply_ns = 0;  // 0: never
  uint32_t session = 0;       // of the peer, as this pair's newest reply says; 0: not known
};

// How a pair's packets are carried. What the maps shall say is one of these per {carrier, tag}.
struct NicCarry {
  PairKey carrier;
  uint8_t tag = 0;
  bool send = false;  // its packets leave by the carrier; else only arriving ones are put back
  auto operator<=>(const NicCarry&) const = default;
};

// Does a packet that the pair's NIC sends fit the carrier's NIC?
bool FitsCarrier(uint32_t pair_mtu, uint32_t carrier_mtu);

struct NicStep {
  struct Outgoing {
    uint32_t via = 0;  // index of the pair that the report is sent by
    NicReport report;
  };
  struct Change {
    PairKey pair;
    std::string peer;
    std::string text;  // for people
    bool lost = false;
  };
  std::map<NicCarry, PairKey> carries;  // and the pair that is carried; all that are wanted now
  std::vector<Outgoing> reports;
  std::vector<Change> changes;
};

class NicFailover {
 public:
  explicit NicFailover(std::string host, const NicFailoverRules& rules = {}) : host_(std::move(host)), rules_(rules) {}

  // A report of `peer`, in the peer's view. One about pairs that are not of that peer has to be kept away.
  void OnReport(const std::string& peer, const NicReport& report, int64_t now_ns);
  // acts: false in observe mode: verdicts are made, nothing is carried.
  NicStep Tick(absl::Span<const NicPair> pairs, bool acts, int64_t now_ns);
  // What an earlier agent left in force, before the first tick: it goes on.
  void Adopt(const PairKey& pair, const NicCarry& carry);
  bool Silent(const PairKey& pair) const;
  // The peer lost its end of it, or wants it free.
  bool MissedByPeer(const PairKey& pair, int64_t now_ns) const;
  // The pair's packets leave by another one.
  bool Carried(const PairKey& pair) const;

 private:
  struct State {
    bool silent = false;
    int64_t seen_reply_ns = 0;  // last_reply_ns at the last tick
    int64_t interval_ns =
        0;  // of probes, shrinking by half per reply: a pair that was idle may take its time to speed up
    int64_t answering_since_ns = 0;  // without a pause; 0: it does not answer
    std::deque<int64_t> losses_ns;
    NicCarry rule;  // tag 0: none
    NicCarry old;   // the rule before, still put back …
    int64_t old_until_ns = 0;
    NicReport peer;  // its last report, in our view
    int64_t peer_ns = 0;
    uint32_t session = 0;    // of the peer, as last seen; 0: never
    int64_t doubted_ns = 0;  // since when that session has to confirm the rule; 0: it has
    int64_t vouched_ns = 0;  // when the peer's last report of the pair came, or an earlier agent's rule was taken over
    NicReport sent;
    int64_t sent_ns = 0, told_until_ns = 0;
  };

  void Judge(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns, NicStep& step);
  void Lead(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns);
  void Follow(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns);
  void End(State& state, int64_t now_ns);
  void DoubtNewSession(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, int64_t now_ns);
  bool Stands(const State& state, absl::Span<const NicPair> pairs, int64_t now_ns) const;
  void Report(const NicPair& pair, State& state, absl::Span<const NicPair> pairs, bool acts, int64_t now_ns,
              NicStep& step);
  static bool OthersAreTooSmall(const NicPair& pair, absl::Span<const NicPair> pairs);
  static bool CarrierFits(const NicPair& pair, const PairKey& carrier, absl::Span<const NicPair> pairs);
  uint8_t FreeTag(const PairKey& carrier) const;
  int64_t LimitNs(const NicPair& pair) const;
  bool Usable(const NicPair& pair, int64_t now_ns) const;

  std::string host_;
  NicFailoverRules rules_;
  std::map<PairKey, State> states_;
};

}  // namespace cw::control
