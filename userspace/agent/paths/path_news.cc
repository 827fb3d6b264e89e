// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/path_news.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kPauseTick = absl::Milliseconds(2), kSlowTick = absl::Milliseconds(20);

// What says that a dead path lives: what arrives now. What said that it was dead is in the event before.
Evidence ReturnEvidence(const cw_ev_slot& verdict, uint32_t progress_round, int64_t silent_ns) {
  return {{"silent_ms", absl::StrFormat("%.0f", static_cast<double>(silent_ns) / 1e6)},
          {"died_round", absl::StrCat(verdict.round)},
          {"last_probe_arrived_round", absl::StrCat(progress_round)}};
}

// What data acknowledged has come through, too.
control::SilenceFound FoundBy(const cw_ev_slot& verdict) {
  const bool data = static_cast<int32_t>(verdict.acked_round - verdict.progress_round) > 0 && verdict.acked_round != 0;
  return {.progress = data ? verdict.acked_round : verdict.progress_round,
          .round = verdict.round,
          .limit = verdict.limit,
          .silence_ns = verdict.silence_ns};
}

}  // namespace

uint8_t PathNews::OtherDscp(const PairState& pair) const {
  return control::OtherClass(mesh_.dscp(pair.index), asks_.pause_dscp());
}

void PathNews::OnSlot(const cw_ev_slot& verdict) {
  PairState* pair = FindIn(pairs_, verdict.pair);
  if (pair == nullptr || verdict.slot >= CW_MAX_SLOTS) return;
  const bool dead = verdict.to == CW_SLOT_DEAD;
  if (!dead && verdict.from != CW_SLOT_DEAD) return;  // first sign of life: the fabric's event says it
  if (!dead) {
    dry_run_.EndDeaths(verdict.pair, verdict.slot);
    return OnSilenceEnds(*pair, verdict.slot);
  }
  OnSilent(*pair, verdict);
  Publish(lost_, {.pair = *pair, .slot = verdict.slot, .cause = LossCause::kDead, .act = true});
}

void PathNews::OnSilent(PairState& pair, const cw_ev_slot& verdict) {
  SlotState& slot = pair.slot[verdict.slot];
  slot.silence.emplace(SilentPath{
      .watch = control::PauseWatch(monotonic_.NowNs(), FoundBy(verdict)), .verdict = verdict, .damping = slot.damping});
  if (ticking_) return;
  ticking_ = true;
  timers_.After(absl::ZeroDuration(), [this] { Tick(); });
}

void PathNews::Tick() {
  asks_.read_probes();  // a probe that was held back may have arrived
  bool any = false, undecided = false;
  for (const auto& [index, pair] : pairs_) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (!pair->slot[s].silence) continue;
      LookAt(*pair, s);
      any = true;
      undecided |= pair->slot[s].silence->watch.verdict() == control::Silence::kUnknown;
    }
  }
  ticking_ = any;
  if (any) timers_.After(undecided ? kPauseTick : kSlowTick, [this] { Tick(); });
}

void PathNews::LookAt(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  const int64_t now_ns = monotonic_.NowNs();
  const cw_pair& shared = *mesh_.shared(pair.index);
  const uint32_t round = probe::Load(shared.cur_round);
  if (slot.silence->watch.Step(now_ns, probe::Load(shared.slot[s].progress_round), round)) Tell(pair, s);
  if (!slot.silence->watch.Ask(now_ns, round, token_ + 1)) return;
  const uint16_t port = mesh_.slots(pair.index).port(s);
  asks_.send_in_class(pair.index, probe::ClassQuestion{.slot = s, .answer = false, .token = ++token_}, port,
                      OtherDscp(pair));
}

bool PathNews::LookAtSilentPair(PairState& pair) {
  const int64_t now_ns = monotonic_.NowNs();
  if (!pair.path_silence.AllSilent()) return pair.pause.Step(now_ns, false, 0, 0);  // nearly all, all the time
  const cw_pair& shared = *mesh_.shared(pair.index);
  const uint32_t round = probe::Load(shared.cur_round);
  uint32_t progress = round - 1;  // of the path that was heard last
  std::optional<uint8_t> asked;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (mesh_.slots(pair.index).port(s) == 0) continue;
    const uint32_t of_slot = probe::Load(shared.slot[s].progress_round);
    if (!asked || static_cast<int32_t>(of_slot - progress) > 0) progress = of_slot;
    if (!asked || (token_ + s) % CW_MAX_SLOTS == 0) asked = s;
  }
  const bool changed = pair.pause.Step(now_ns, asked.has_value(), progress, round);
  if (asked && pair.pause.Ask(now_ns, round, token_ + 1))
    asks_.send_in_class(pair.index, probe::ClassQuestion{.slot = *asked, .answer = false, .token = ++token_},
                        mesh_.slots(pair.index).port(*asked), OtherDscp(pair));
  return changed;
}

void PathNews::OnClassQuestion(PairState& pair, const probe::ClassQuestion& question) {
  if (!question.answer) {
    mail_.Send(pair.index, probe::ClassQuestion{.slot = question.slot, .answer = true, .token = question.token});
    return;
  }
  pair.pause.Answered(monotonic_.NowNs(), question.token);
  SlotState& slot = pair.slot[question.slot];
  if (!slot.silence) return;
  slot.silence->watch.Answered(monotonic_.NowNs(), question.token);
  LookAt(pair, question.slot);
}

// A reply to a probe on a silent path. However late it is, one that was sent since the verdict may have been sent when
// the path had healed: only those that the verdict missed can have been held back.
void PathNews::OnProbeOfSilent(const PairState& pair, SlotState& slot, const cw_ev_probe& probe) {
  const cw_ev_slot& verdict = slot.silence->verdict;
  if (probe.t1 > verdict.ns && slot.silence->answered_ns == 0) {
    slot.silence->answered_ns = static_cast<int64_t>(probe.t1);
    links_.Answered(pair, verdict.slot, slot.silence->answered_ns);
  }
  slot.silence->watch.Held(probe.round);
}

void PathNews::Tell(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  SilentPath& silent = *slot.silence;
  const cw_ev_slot& verdict = silent.verdict;
  const bool dead = silent.watch.verdict() == control::Silence::kDead;
  const bool was_dead = silent.told_dead;
  silent.own_link = dead && asks_.own_link_lost(pair, verdict);
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
  event.evidence = EvidenceOf(pair, silent);
  if (silent.own_link) event.evidence.insert(event.evidence.begin(), {"nic_carrier", "down"});
  events_.Log(std::move(event));
  if (dead) {
    silent.told_dead = true;
    OnDead(pair, s);
  } else if (was_dead) {
    links_.Forgive(pair, s);
    slot.damping = silent.damping;  // it did not fail
    slot.damping.Up(monotonic_.NowNs());
    damping_.Update(pair);
  }
}

Evidence PathNews::EvidenceOf(const PairState& pair, const SilentPath& silent) const {
  const cw_ev_slot& verdict = silent.verdict;
  Evidence evidence = {{"pair", PairText(pair.key.local, pair.key.remote)},
                       {"round", absl::StrCat(verdict.round)},
                       {"last_probe_arrived_round", absl::StrCat(verdict.progress_round)},
                       {"last_data_acknowledged_round", absl::StrCat(verdict.acked_round)},
                       {"misses", absl::StrCat(verdict.misses)},
                       {"limit", absl::StrCat(verdict.limit)},
                       {"silence_us", absl::StrCat(verdict.silence_ns / 1000)},
                       {"jump_us", absl::StrCat(verdict.jump_ns / 1000)},
                       {"half_of_paths_lagged", verdict.half != 0 ? "yes" : "no"},
                       {"probed_in_dscp", absl::StrCat(mesh_.dscp(pair.index))},
                       {"arrived_late", absl::StrCat(silent.watch.held())},
                       {"udp_port", absl::StrCat(mesh_.slots(pair.index).port(verdict.slot))}};
  if (silent.watch.asked() > 0) {
    evidence.push_back({"asked_in_dscp", absl::StrCat(OtherDscp(pair))});
    evidence.push_back({"asked", absl::StrCat(silent.watch.asked())});
    evidence.push_back({"answered", absl::StrCat(silent.watch.answers())});
  }
  return evidence;
}

// The kernel uses the path again.
void PathNews::OnSilenceEnds(PairState& pair, uint8_t s) {
  SlotState& slot = pair.slot[s];
  std::string text = absl::StrFormat("path %d to %s is up again", s, pair.peer);
  Evidence evidence = {{"pair", PairText(pair.key.local, pair.key.remote)},
                       {"udp_port", absl::StrCat(mesh_.slots(pair.index).port(s))}};
  if (slot.silence) {
    asks_.read_probes();
    SilentPath& silent = *slot.silence;
    const int64_t now_ns = monotonic_.NowNs();
    if (silent.watch.held() > 0 && silent.watch.verdict() != control::Silence::kPaused &&
        silent.watch.Step(now_ns, silent.verdict.progress_round, silent.verdict.round))
      Tell(pair, s);
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
      const uint32_t progress_round = probe::Load(mesh_.shared(pair.index)->slot[s].progress_round);
      const Evidence back = ReturnEvidence(silent.verdict, progress_round, silent_ns);
      evidence.insert(evidence.begin(), back.begin(), back.end());
    } else {
      evidence = EvidenceOf(pair, silent);
    }
    slot.silence.reset();
  }
  slot.damping.Up(monotonic_.NowNs());
  asks_.doubt(pair);
  events_.Log({.type = "path",
               .severity = telemetry::Severity::kNotice,
               .text = std::move(text),
               .peer = pair.peer,
               .slot = s,
               .evidence = std::move(evidence)});
  damping_.Update(pair);
}

void PathNews::OnDead(PairState& pair, uint8_t s) {
  const int64_t now_ns = monotonic_.NowNs();
  asks_.doubt(pair);
  SlotState& slot = pair.slot[s];
  if (slot.silence->own_link) return;
  slot.damping.Down(now_ns);
  slot.flaps.Down(now_ns);
  links_.Blame(pair, slot.silence->verdict);
  damping_.Update(pair);
}

}  // namespace cw::agent
