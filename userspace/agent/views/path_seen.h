// SPDX-License-Identifier: Apache-2.0
//
// One path in the words of the uplink. Apart from where the agent keeps it, so that the fleet's simulator
// (tests/sim/fleet_agent.h) cannot tell what no agent would. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/path_silence.h"
#include "userspace/model/addr.h"
#include "userspace/probe/end_proof.h"
#include "userspace/telemetry/path_delay.h"
#include "userspace/uplink/seen.h"

namespace cw::agent {

// Where all paths of a pair are silent nobody calls one of them dead. stands: only their class does not pass.
inline cwfabric::v1::PathState StateIn(const control::PathSilence& silence, uint8_t slot, cwfabric::v1::PathState state,
                                       bool stands) {
  const bool alive = state == cwfabric::v1::PATH_STATE_UP || state == cwfabric::v1::PATH_STATE_SUSPECT;
  if (!alive || !silence.AllSilent() || silence.SilentNs(slot) == 0) return state;
  return stands ? cwfabric::v1::PATH_STATE_PAUSED : cwfabric::v1::PATH_STATE_SILENT;
}

// What the agent knows of a path; all of it outlives the call.
struct PathWord {
  const control::PathSilence& silence;  // of its pair
  const telemetry::PathDelay &forward, &reverse;
  cwfabric::v1::PathState state;  // by the programs' record
  bool revives;                   // dead by the record, and probes have arrived since
  bool held_up;                   // another class passes while its own does not …
  bool pair_stands;               // … as on all paths of the pair
  const std::vector<Addr>* hops;  // null: not known
  bool silence_behind;            // no trace passes their end
  probe::EndProof& end_proof;     // of the slot
  uint32_t largest_bytes = 0;     // the largest packet that arrives, where full-size ones do not
  bool full_size = false;         // they do
};

// Both directions of it: replies ride on the peer's slot of this number, whose hops only the peer knows.
// seen: its names. seconds: of the last so many; 0: without measurements.
inline void AppendSeen(uplink::PathSeen seen, const PathWord& word, int64_t now_ns, int seconds,
                       std::vector<uplink::PathSeen>& out) {
  seen.state = StateIn(word.silence, seen.slot, word.state, word.pair_stands);
  seen.largest_bytes = word.largest_bytes;
  seen.full_size = word.full_size;
  seen.silent_ms = static_cast<uint64_t>(word.silence.SilentNs(seen.slot) / 1'000'000);
  // Flows keep off until many probes in a row arrive. It loses packets, or has just healed, and is not cut.
  if (seen.state == cwfabric::v1::PATH_STATE_DEAD && word.revives && seen.silent_ms == 0)
    seen.state = cwfabric::v1::PATH_STATE_SUSPECT;
  // Dead for flows, after seconds; the fleet looks for what holds the class up.
  if (seen.state == cwfabric::v1::PATH_STATE_DEAD && word.held_up) seen.state = cwfabric::v1::PATH_STATE_PAUSED;
  const auto fill = [&](const telemetry::PathDelay& delay) {
    seen.base_ns = delay.BaseNs() == INT64_MAX ? 0 : static_cast<uint64_t>(std::max<int64_t>(0, delay.BaseNs()));
    if (seconds == 0) return;
    telemetry::DelayWindow window = delay.Window(now_ns, seconds);
    seen.queue = std::move(window.queueing);
    seen.known = window.known - window.outage;
    seen.lost = window.lost - window.outage;
  };
  fill(word.forward);
  if (word.hops != nullptr) seen.hops = *word.hops;
  // A path that is cut ends where the cut is: its last answer is nobody's neighbour.
  const bool answers = seen.silent_ms == 0 &&
                       (seen.state == cwfabric::v1::PATH_STATE_UP || seen.state == cwfabric::v1::PATH_STATE_SUSPECT);
  if (seen.hops && !word.end_proof.Look(*seen.hops, word.silence_behind, answers)) seen.hops->emplace_back();
  out.push_back(seen);
  seen.reverse = true;
  seen.hops.reset();
  seen.silent_ms = 0;
  seen.largest_bytes = 0;
  seen.full_size = false;
  fill(word.reverse);
  // Where nothing answers, what still arrives from there tells which direction is broken.
  const bool asks = word.silence.AllSilent() && word.silence.peer() != control::PathSilence::Peer::kNotKnown;
  seen.heard = asks && word.silence.peer() == control::PathSilence::Peer::kHeard;
  if (seen.queue.count() > 0 || seconds == 0 || asks) out.push_back(std::move(seen));
}

}  // namespace cw::agent
