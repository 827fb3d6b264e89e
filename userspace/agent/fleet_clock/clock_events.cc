// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_events.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sync/neighbours.h"

namespace cw::agent {
namespace {

using sync::FleetTrouble;
using sync::Reason;
using sync::SyncState;
using telemetry::Severity;

constexpr int kNamedRounds = 3;     // a false ticker for so long is named …
constexpr int kClearedRounds = 10;  // … until it agreed for so long

std::string NsText(double ns) {
  return std::abs(ns) < 1e4 ? absl::StrFormat("%.0f ns", ns) : absl::StrFormat("%.1f us", ns / 1e3);
}

Evidence TimeEvidence(const sync::FleetTime& time, uint64_t timeline) {
  return {{"timeline", TimelineName(timeline)},
          {"epoch", absl::StrCat(time.epoch)},
          {"offset_ns", absl::StrCat(time.offset_ns)},
          {"rate_ppb", absl::StrFormat("%.3f", time.slope_ppb)},
          {"error_est_ns", absl::StrCat(time.error_est_ns)},
          {"bound_ns", absl::StrCat(time.bound_ns)},
          {"reference", time.reference}};
}

// "h1 * -12, h2 x 100035": what the neighbours said.
std::string VerdictsText(absl::Span<const sync::NeighbourVerdict> verdicts) {
  return absl::StrJoin(verdicts, ", ", [](std::string* out, const sync::NeighbourVerdict& v) {
    absl::StrAppendFormat(out, "%s %c %.0f", v.name, static_cast<char>(v.reason), v.disagreement_ns);
  });
}

}  // namespace

std::string TimelineName(uint64_t timeline) { return timeline == 0 ? "" : absl::StrFormat("%016x", timeline); }

std::string TroubleText(const sync::FleetTime& time) {
  switch (time.trouble) {
    case FleetTrouble::kSettling:
      return "settling: not compared with enough neighbours for long enough yet";
    case FleetTrouble::kDisrupted:
      return "the local clock was set or slept, and is compared afresh";
    case FleetTrouble::kDisputed:
      return "refused: the neighbours contradict each other and no majority agrees";
    case FleetTrouble::kIsolated:
      return "no neighbour can be compared now";
    case FleetTrouble::kSplit:
      return "refused: the timeline is split into parts that contradict each other, which come together within seconds";
    case FleetTrouble::kMerging:
      return time.state == SyncState::kSynchronised ? "parts of the fleet that were cut off slew towards each other"
                                                    : "this host has gone over to another part of a split timeline";
    case FleetTrouble::kNone:
      break;
  }
  return time.state == SyncState::kSynchronised ? "" : "no neighbour was compared yet";
}

std::vector<telemetry::Event> ClockEvents::Look(int64_t now_ns, const sync::FleetTime& time, uint64_t timeline,
                                                absl::Span<const sync::NeighbourView> views,
                                                absl::Span<const sync::NeighbourVerdict> verdicts) {
  std::vector<telemetry::Event> out;
  LookAtEpoch(now_ns, time, timeline, out);
  LookAtState(now_ns, time, timeline, verdicts, out);
  LookAtNeighbours(views, verdicts, out);
  last_ = time;
  return out;
}

void ClockEvents::LookAtState(int64_t, const sync::FleetTime& time, uint64_t timeline,
                              absl::Span<const sync::NeighbourVerdict> verdicts, std::vector<telemetry::Event>& out) {
  const bool same = time.state == told_.state && time.trouble == told_.trouble;
  // Settling is told only when something was lost by it.
  const bool young = told_.state == SyncState::kUnknown && time.trouble == FleetTrouble::kSettling;
  if (same || young) return;
  telemetry::Event event{.type = "clock"};
  event.evidence = TimeEvidence(time, timeline);
  event.evidence.push_back({"neighbours_ns", VerdictsText(verdicts)});
  if (time.state == SyncState::kSynchronised && time.trouble == FleetTrouble::kNone) {
    event.text =
        absl::StrCat("fleet time is synchronised: likely within ", NsText(static_cast<double>(time.error_est_ns)),
                     ", surely within ", NsText(static_cast<double>(time.bound_ns)), " of any host on its timeline");
  } else {
    event.severity = time.trouble == FleetTrouble::kDisputed || time.trouble == FleetTrouble::kDisrupted ||
                             time.trouble == FleetTrouble::kSplit
                         ? Severity::kAlert
                         : Severity::kNotice;
    event.text = absl::StrCat("fleet time is ", sync::FleetStateName(time), ": ", TroubleText(time));
  }
  out.push_back(std::move(event));
  told_ = time;
  told_timeline_ = timeline;
}

void ClockEvents::LookAtEpoch(int64_t now_ns, const sync::FleetTime& time, uint64_t timeline,
                              std::vector<telemetry::Event>& out) {
  const bool had_one = last_.epoch != 0 && told_timeline_ != 0;
  if (had_one && time.epoch != last_.epoch) {
    const int64_t step_ns = time.ToFleetNs(now_ns) - last_.ToFleetNs(now_ns);
    const bool joined = timeline != told_timeline_;
    telemetry::Event event{.type = "clock", .severity = Severity::kNotice};
    event.text = joined ? absl::StrCat("fleet time is now that of timeline ", TimelineName(timeline),
                                       ", it was that of ", TimelineName(told_timeline_))
                        : std::string("fleet time was stepped here");
    event.evidence = TimeEvidence(time, timeline);
    event.evidence.push_back({"step_ns", absl::StrCat(step_ns)});
    out.push_back(std::move(event));
  }
  if (time.epoch != last_.epoch) told_timeline_ = timeline;
}

void ClockEvents::LookAtNeighbours(absl::Span<const sync::NeighbourView> views,
                                   absl::Span<const sync::NeighbourVerdict> verdicts,
                                   std::vector<telemetry::Event>& out) {
  for (size_t i = 0; i < verdicts.size() && i < views.size(); ++i) {
    const sync::NeighbourVerdict& verdict = verdicts[i];
    const bool agrees = verdict.reason == Reason::kUsed || verdict.reason == Reason::kTrimmed;
    if (!agrees && verdict.reason != Reason::kFalseTicker) continue;  // says nothing either way
    Watched& watched = watched_[verdict.name];
    const bool changed = watched.named == agrees;
    watched.rounds = changed ? watched.rounds + 1 : 0;
    if (watched.rounds < (watched.named ? kClearedRounds : kNamedRounds)) continue;
    watched = {.rounds = 0, .named = !watched.named};
    const sync::NeighbourView& view = views[i];
    telemetry::Event event{.type = "clock", .peer = verdict.name};
    event.severity = watched.named ? Severity::kAlert : Severity::kNotice;
    event.text =
        watched.named
            ? absl::StrFormat(
                  "%s is a false ticker: its fleet time differs by %s from what the majority says, and is left out",
                  verdict.name, NsText(verdict.disagreement_ns))
            : absl::StrCat(verdict.name, " agrees with the majority again");
    event.evidence = {{"disagreement_ns", absl::StrFormat("%.0f", verdict.disagreement_ns)},
                      {"link_error_est_ns", absl::StrCat(view.link.error_est_ns)},
                      {"link_bound_ns", absl::StrCat(view.link.bound_ns)},
                      {"claimed_error_est_ns", absl::StrCat(view.claim.error_est_ns)},
                      {"claimed_width_ns", absl::StrCat(view.claim.width_ns)},
                      {"neighbours_ns", VerdictsText(verdicts)}};
    out.push_back(std::move(event));
  }
}

// By the rate at which they leave the others: 11.6 ppm are a second in a day.
void ClockEvents::LookAtSmears(absl::Span<const sync::AnchorVerdict> anchors, std::vector<telemetry::Event>& out) {
  std::string names;
  bool outvoted = false;
  for (const sync::AnchorVerdict& a : anchors) {
    if (!a.smears) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", sync::HostLabel(a.anchor_id));
    outvoted |= a.reason == sync::Reason::kFalseTicker;
  }
  smears_rounds_ = names.empty() == smears_.empty() ? 0 : smears_rounds_ + 1;
  if (smears_rounds_ < (names.empty() ? kClearedRounds : kNamedRounds)) return;
  smears_rounds_ = 0;
  telemetry::Event event{.type = "clock", .severity = names.empty() ? Severity::kNotice : Severity::kAlert};
  if (names.empty()) {
    event.text = absl::StrCat("no anchor smears a leap second any more; it was ", smears_);
  } else if (outvoted) {
    event.text = absl::StrCat("anchors smear a leap second: ", names,
                              ". They have no vote on TAI; let their time servers step it, as the others' do");
  } else {
    event.text = absl::StrCat("some of these anchors smear a leap second and some do not: ", names,
                              ". No majority says which; let all time servers treat it alike");
  }
  smears_ = std::move(names);
  out.push_back(std::move(event));
}

void ClockEvents::LookAtAnchors(absl::Span<const sync::AnchorVerdict> anchors, bool tai_known,
                                std::vector<telemetry::Event>& out) {
  std::string names;
  std::set<uint64_t> stepped;
  LookAtSmears(anchors, out);
  for (const sync::AnchorVerdict& a : anchors) {
    if (a.contradicts) absl::StrAppend(&names, names.empty() ? "" : ", ", sync::HostLabel(a.anchor_id));
    if (!a.stepped) continue;
    stepped.insert(a.anchor_id);
    if (stepped_.count(a.anchor_id) != 0) continue;
    telemetry::Event event{.type = "clock", .severity = Severity::kAlert};
    event.text = absl::StrCat("the anchor of host ", sync::HostLabel(a.anchor_id),
                              " stepped: it has no vote on TAI until it agrees with the others again");
    event.evidence = {{"bound_ns", absl::StrCat(a.bound_ns)}};
    out.push_back(std::move(event));
  }
  stepped_ = std::move(stepped);
  const bool contradict = !tai_known && !names.empty();
  anchors_rounds_ = contradict == anchors_contradict_ ? 0 : anchors_rounds_ + 1;
  if (anchors_rounds_ < (contradict ? kNamedRounds : kClearedRounds)) return;
  anchors_rounds_ = 0;
  anchors_contradict_ = contradict;
  telemetry::Event event{.type = "clock", .severity = contradict ? Severity::kAlert : Severity::kNotice};
  event.text = contradict ? absl::StrCat("TAI is unknown: no majority of anchors agrees; those of hosts ", names,
                                         " contradict each other")
                          : std::string("no anchors contradict each other any more so that TAI is unknown");
  out.push_back(std::move(event));
}

}  // namespace cw::agent
