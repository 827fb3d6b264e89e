// SPDX-License-Identifier: Apache-2.0
//
// The kernel's verdicts on paths: one went silent, dead or paused (control/pause.h decides; here are its questions), or
// is used again. A silent path is published as lost at once, whatever comes out later. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/timers.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class PathNews {
 public:
  struct Asks {
    std::function<void()> read_probes;  // one that was held back may have arrived
    // As a message of the pair, on a path of its own choice and in a class of traffic.
    std::function<void(uint32_t pair, const probe::Body& body, uint16_t port, uint8_t dscp)> send_in_class;
    std::function<std::optional<uint8_t>()> pause_dscp;                             // the other class, as configured
    std::function<bool(const PairState& pair, const cw_ev_slot& v)> own_link_lost;  // since its last sign of life
    std::function<void(const PairState& pair)> doubt;                               // switches may deal ports out anew
  };

  // All of them outlive it.
  PathNews(const PairTable& pairs, const probe::Mesh& mesh, LinkFlaps& links, Damping& damping,
           const PathLostSubscribers& lost, const Clock& monotonic, Timers& timers, PeerMail& mail, DryRun& dry_run,
           EventSink& events, Asks asks)
      : pairs_(pairs),
        mesh_(mesh),
        links_(links),
        damping_(damping),
        lost_(lost),
        monotonic_(monotonic),
        timers_(timers),
        mail_(mail),
        dry_run_(dry_run),
        events_(events),
        asks_(std::move(asks)) {}

  void OnSlot(const cw_ev_slot& verdict);
  void OnProbeOfSilent(const PairState& pair, SlotState& slot, const cw_ev_probe& probe);  // that was answered
  void OnClassQuestion(PairState& pair, const probe::ClassQuestion& question);
  // Where all paths of a pair are silent nobody calls one of them dead, and none asks about its class. True: that their
  // class stands, or goes on, is known since this call.
  bool LookAtSilentPair(PairState& pair);

 private:
  uint8_t OtherDscp(const PairState& pair) const;
  void OnSilent(PairState& pair, const cw_ev_slot& verdict);
  void OnSilenceEnds(PairState& pair, uint8_t s);
  void OnDead(PairState& pair, uint8_t s);
  void Tick();
  void LookAt(PairState& pair, uint8_t s);
  void Tell(PairState& pair, uint8_t s);
  Evidence EvidenceOf(const PairState& pair, const SilentPath& silent) const;

  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  LinkFlaps& links_;
  Damping& damping_;
  const PathLostSubscribers& lost_;
  const Clock& monotonic_;
  Timers& timers_;
  PeerMail& mail_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;

  bool ticking_ = false;
  uint32_t token_ = 0;  // of the newest question
};

}  // namespace cw::agent
