// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/delay_gap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::control {
namespace {

std::string CauseText(GapCause cause, const GapClues& clues) {
  switch (cause) {
    case GapCause::kPath:
      return "the fabric chooses paths by more than ports, so the probes on its port need not take its path";
    case GapCause::kClass:
      return absl::StrFormat("it is in DSCP %d, the probes in %d: another class waits longer (probe.dscp)",
                             clues.flow_dscp, clues.probe_dscp);
    case GapCause::kPauses:
      return "flow control paused this path lately: packets of a burst wait, single probes slip through between pauses";
    case GapCause::kReceiver:
      return "its receiver is slow";
    case GapCause::kSender:
      return "its sender is slow: packets wait in this host, behind the stamp";
    case GapCause::kUnknown:
      return "neither class nor pauses nor a slow host are seen: bursts that last for less than a hundredth of the "
             "time, another queue of the NIC, or a processor that is busy when packets come";
    case GapCause::kNone:
      break;
  }
  return "";
}

std::string Text(const GapVerdict& verdict, const GapClues& clues, int64_t now_ns) {
  return absl::StrFormat("its packets take %.1f µs and the probes on its path %.1f µs (p50), for %.0f s now: %s",
                         verdict.look.flow_p50_ns / 1e3, verdict.look.mesh_p50_ns / 1e3,
                         static_cast<double>(now_ns - verdict.since_ns) / 1e9, CauseText(verdict.cause, clues));
}

}  // namespace

const char* GapCauseName(GapCause cause) {
  switch (cause) {
    case GapCause::kPath:
      return "path";
    case GapCause::kClass:
      return "class";
    case GapCause::kPauses:
      return "pauses";
    case GapCause::kReceiver:
      return "receiver";
    case GapCause::kSender:
      return "sender";
    case GapCause::kUnknown:
      return "unknown";
    case GapCause::kNone:
      break;
  }
  return "";
}

double GapSpreadNs(const GapRules& rules, const GapLook& look) {
  const double varies = std::max(0.0, look.mesh_p99_ns - look.mesh_p50_ns);
  return varies + std::max(0.0, look.larger_ns) + std::max(rules.floor_ns, rules.own_spread * look.flow_iqr_ns);
}

GapCause LikelyCause(const GapClues& clues) {
  if (!clues.ports_choose) return GapCause::kPath;
  if (clues.flow_dscp != clues.probe_dscp) return GapCause::kClass;
  if (clues.paused) return GapCause::kPauses;
  if (clues.slow_receiver) return GapCause::kReceiver;
  if (clues.slow_sender) return GapCause::kSender;
  return GapCause::kUnknown;
}

bool GapWatch::Step(const FlowKey& flow, int64_t now_ns, const GapLook& look, const GapClues& clues) {
  Watched& watched = flows_[flow];
  watched.seen = true;
  GapVerdict& verdict = watched.verdict;
  verdict.look = look;
  // Too few samples say neither that it is there nor that it is gone.
  verdict.known = look.flow_samples >= rules_.flow_samples && look.mesh_samples >= rules_.mesh_samples;
  if (!verdict.known) {
    if (!verdict.finding) verdict.since_ns = 0;
    return false;
  }
  verdict.spread_ns = GapSpreadNs(rules_, look);
  const bool gap = look.flow_p50_ns - look.mesh_p50_ns > verdict.spread_ns;
  if (gap) {
    watched.away_ns = 0;
    if (verdict.since_ns == 0) verdict.since_ns = now_ns;
    const bool began = !verdict.finding && now_ns - verdict.since_ns >= rules_.lasting_ns;
    if (!verdict.finding && !began) return false;
    verdict.finding = true;
    verdict.cause = LikelyCause(clues);
    verdict.text = Text(verdict, clues, now_ns);
    verdict.evidence = {{"flow_p50_ns", absl::StrFormat("%.0f", look.flow_p50_ns)},
                        {"probes_p50_ns", absl::StrFormat("%.0f", look.mesh_p50_ns)},
                        {"probes_p99_ns", absl::StrFormat("%.0f", look.mesh_p99_ns)},
                        {"spread_ns", absl::StrFormat("%.0f", verdict.spread_ns)},
                        {"likely", GapCauseName(verdict.cause)}};
    return began;
  }
  if (!verdict.finding) {
    verdict.since_ns = 0;
    return false;
  }
  if (watched.away_ns == 0) watched.away_ns = now_ns;
  if (now_ns - watched.away_ns < rules_.over_ns) return false;
  watched = {.verdict = {.known = true, .spread_ns = verdict.spread_ns, .look = look}, .away_ns = 0, .seen = true};
  return true;
}

void GapWatch::ForgetOthers() {
  absl::erase_if(flows_, [](const auto& entry) { return !entry.second.seen; });
  for (auto& [flow, watched] : flows_) watched.seen = false;
}

const GapVerdict* GapWatch::Of(const FlowKey& flow) const {
  const auto at = flows_.find(flow);
  return at == flows_.end() ? nullptr : &at->second.verdict;
}

}  // namespace cw::control
