// SPDX-License-Identifier: Apache-2.0
// Paths that went silent: dead, or paused? control/pause.h decides; here are its questions, and what is told.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/peer_mail.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kPauseTick = absl::Milliseconds(2), kSlowTick = absl::Milliseconds(20);

// What says that a dead path lives: what arrives now. What said that it was dead is in the event before.
Evidence ReturnEvidence(const cw_ev_slot& verdict, uint32_t progress_round, int64_t silent_ns) {
  return {{"silent_ms", absl::StrFormat("%.0f", static_cast<double>(silent_ns) / 1e6)},
          {"died_round", absl::StrCat(verdict.round)},
          {"last_probe_arrived_round", absl::StrCat(progress_round)}};
}

}  // namespace

uint8_t Agent::OtherDscp(const PairState& pair) const {
  return control::OtherClass(engine_->mesh().dscp(pair.index), options_.config.probe.pause_dscp);
}

void Agent::OnSilent(PairState& pair, const cw_ev_slot& verdict) {
  SlotState& slot = pair.slot[verdict.slot];
  slot.silence.emplace(SilentPath{.watch = control::PauseWatch(MonotonicNs(), verdict.progress_round),
                                  .verdict = verdict,
                                  .damping = slot.damping});
  if (silence_ticking_) return;
  silence_ticking_ = true;
  loop_->After(absl::ZeroDuration(), [this] { SilenceTick(); });
}

void Agent::SilenceTick() {
  ReadProbes();  // a probe that was held back may have arrived
  bool any = false, undecided = false;
  for (auto& [index, pair] : pairs_) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (!pair->slot[s].silence) continue;
      LookAtSilence(*pair, s);
      any = true;
      undecided |= pair->slot[s].silence->watch.verdict() == control::Silence::kUnknown;
    }
  }
  silence_ticking_ = any;
  if (any) loop_->After(undecided ? kPauseTick : kSlowTick, [this] { SilenceTick(); });
}

void Agent::LookAtSilence(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  const int64_t now_ns = MonotonicNs();
  const cw_slot& shared = dataplane_->pairs()[pair.index].slot[s];
  if (slot.silence->watch.Step(now_ns, probe::Load(shared.progress_round))) TellSilence(pair, s);
  if (!slot.silence->watch.Ask(now_ns)) return;
  const uint16_t port = engine_->mesh().slots(pair.index).port(s);
  (void)engine_->SendMessageOn(pair.index, probe::ClassQuestion{.slot = s, .answer = false, .token = ++class_token_},
                               port, OtherDscp(pair));
}

void Agent::OnClassQuestion(PairState& pair, const probe::ClassQuestion& question) {
  if (!question.answer) {
    mail_->Send(pair.index, probe::ClassQuestion{.slot = question.slot, .answer = true, .token = question.token});
    return;
  }
  SlotState& slot = pair.slot[question.slot];
  if (!slot.silence) return;
  slot.silence->watch.Answered(MonotonicNs());
  LookAtSilence(pair, question.slot);
}

// A reply to a probe on a silent path. It was held back if it was sent before the verdict, or was under way for longer
// than a path is believed to be alive without a sign of life.
void Agent::OnProbeOfSilent(const PairState& pair, SlotState& slot, const cw_ev_probe& probe) {
  const cw_ev_slot& verdict = slot.silence->verdict;
  if (probe.t1 > verdict.ns && slot.silence->answered_ns == 0) {
    slot.silence->answered_ns = static_cast<int64_t>(probe.t1);
    link_flaps_->Answered(pair, verdict.slot, slot.silence->answered_ns);
  }
  const bool before = probe.t1<verdict.ns&& static_cast<int32_t>(probe.round - verdict.progress_round)> 0;
  if (before || probe.t4 - probe.t1 >= verdict.silence_ns) slot.silence->watch.Held();
}

void Agent::TellSilence(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  SilentPath& silent = *slot.silence;
  const cw_ev_slot& verdict = silent.verdict;
  const bool dead = silent.watch.verdict() == control::Silence::kDead;
  const bool was_dead = silent.told_dead;
  silent.own_link = dead && carriers_->Lost(pair, verdict);
  telemetry::Event event{.type = "path",
                         .severity = dead ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
                         .peer = pair.peer,
                         .slot = s};
  if (dead) {
    event.text = absl::StrFormat("path %d to %s is dead: %d rounds of probes missed while path %d answered", s,
                                 pair.peer, verdict.misses, verdict.witness);
    if (silent.own_link) absl::StrAppend(&event.text, "; our own NIC had no carrier, so no path is to blame");
  } else {
    event.text = absl::StrFormat(
        "path %d to %s %s paused, not dead: %s", s, pair.peer, was_dead ? "was" : "is",
        silent.watch.held() > 0 ? "what was missing arrives late" : absl::StrFormat("DSCP %d passes", OtherDscp(pair)));
  }
  event.evidence = SilenceEvidence(pair, silent);
  if (silent.own_link) event.evidence.insert(event.evidence.begin(), {"nic_carrier", "down"});
  Log(std::move(event));
  if (dead) {
    silent.told_dead = true;
    OnDead(pair, s);
  } else if (was_dead) {
    link_flaps_->Forgive(pair, s);
    slot.damping = silent.damping;  // it did not fail
    slot.damping.Up(MonotonicNs());
    UpdateDamping(pair);
  }
}

Evidence Agent::SilenceEvidence(const PairState& pair, const SilentPath& silent) const {
  const cw_ev_slot& verdict = silent.verdict;
  Evidence evidence = {{"round", absl::StrCat(verdict.round)},
                       {"last_probe_arrived_round", absl::StrCat(verdict.progress_round)},
                       {"last_data_acknowledged_round", absl::StrCat(verdict.acked_round)},
                       {"misses", absl::StrCat(verdict.misses)},
                       {"limit", absl::StrCat(verdict.limit)},
                       {"silence_us", absl::StrCat(verdict.silence_ns / 1000)},
                       {"jump_us", absl::StrCat(verdict.jump_ns / 1000)},
                       {"half_of_paths_lagged", verdict.half != 0 ? "yes" : "no"},
                       {"probed_in_dscp", absl::StrCat(engine_->mesh().dscp(pair.index))},
                       {"arrived_late", absl::StrCat(silent.watch.held())},
                       {"udp_port", absl::StrCat(engine_->mesh().slots(pair.index).port(verdict.slot))}};
  if (silent.watch.asked() > 0) {
    evidence.push_back({"asked_in_dscp", absl::StrCat(OtherDscp(pair))});
    evidence.push_back({"asked", absl::StrCat(silent.watch.asked())});
    evidence.push_back({"answered", absl::StrCat(silent.watch.answers())});
  }
  return evidence;
}

// The kernel uses the path again.
void Agent::OnSilenceEnds(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  std::string text = absl::StrFormat("path %d to %s is up again", s, pair.peer);
  Evidence evidence = {{"udp_port", absl::StrCat(engine_->mesh().slots(pair.index).port(s))}};
  if (slot.silence) {
    ReadProbes();
    SilentPath& silent = *slot.silence;
    const int64_t now_ns = MonotonicNs();
    if (silent.watch.held() > 0 && silent.watch.verdict() != control::Silence::kPaused &&
        silent.watch.Step(now_ns, silent.verdict.progress_round))
      TellSilence(pair, s);
    const int64_t silent_ns = now_ns - silent.watch.began_ns() + silent.verdict.silence_ns;
    if (silent.watch.verdict() == control::Silence::kPaused) {
      slot.paused_ns = now_ns;
      text = absl::StrFormat("path %d to %s goes on: it was paused for some %.0f ms", s, pair.peer,
                             static_cast<double>(silent_ns) / 1e6);
    } else if (silent.watch.verdict() == control::Silence::kUnknown) {
      text =
          absl::StrFormat("path %d to %s was silent for %.0f ms", s, pair.peer, static_cast<double>(silent_ns) / 1e6);
    }
    if (silent.watch.verdict() == control::Silence::kDead) {
      const uint32_t progress_round = probe::Load(dataplane_->pairs()[pair.index].slot[s].progress_round);
      const Evidence back = ReturnEvidence(silent.verdict, progress_round, silent_ns);
      evidence.insert(evidence.begin(), back.begin(), back.end());
    } else {
      evidence = SilenceEvidence(pair, silent);
    }
    slot.silence.reset();
  }
  slot.damping.Up(MonotonicNs());
  DoubtPaths(pair);
  Log({.type = "path",
       .severity = telemetry::Severity::kNotice,
       .text = std::move(text),
       .peer = pair.peer,
       .slot = s,
       .evidence = std::move(evidence)});
  UpdateDamping(pair);
}

// Where a path dies or comes back, switches may deal ports out anew. Pairs without flows have time.
void Agent::DoubtPaths(const PairState& pair) {
  if (!pair.active) return;
  engine_->DoubtPaths(pair.index, NowNs());
  ScheduleTick();
}

void Agent::OnDead(PairState& pair, uint8_t s) {
  const int64_t now_ns = MonotonicNs();
  DoubtPaths(pair);
  SlotState& slot = pair.slot[s];
  if (slot.silence->own_link) return;
  slot.damping.Down(now_ns);
  slot.flaps.Down(now_ns);
  link_flaps_->Blame(pair, slot.silence->verdict);
  UpdateDamping(pair);
}

}  // namespace cw::agent
