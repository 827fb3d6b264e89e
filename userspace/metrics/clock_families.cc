// SPDX-License-Identifier: Apache-2.0
// Fleet time, as cwctl clock tells it.
#include <map>

#include "userspace/metrics/family_builder.h"

namespace cw::metrics {
namespace {

using v1::ClockReply;
using v1::ClockSource;
using v1::ClockTracking;

void AddTracking(const ClockTracking& t, FamilyBuilder& out) {
  out.StateSet("clock_state", "Fleet time on this host: 1 for the state that holds.", "state",
               {{"unknown", t.state() == ClockTracking::STATE_UNKNOWN},
                {"synchronised", t.state() == ClockTracking::STATE_SYNCHRONISED},
                {"free_running", t.state() == ClockTracking::STATE_FREE_RUNNING},
                {"disrupted", t.state() == ClockTracking::STATE_DISRUPTED},
                {"split", t.state() == ClockTracking::STATE_SPLIT},
                {"merging", t.state() == ClockTracking::STATE_MERGING}});
  out.Gauge("clock_neighbours", "Hosts that fleet time is compared with, and those in use.", t.neighbours(),
            {{"use", "compared"}});
  out.Gauge("clock_neighbours", "Hosts that fleet time is compared with, and those in use.", t.neighbours_used(),
            {{"use", "used"}});
  if (t.state() == ClockTracking::STATE_UNKNOWN) return;  // then nothing below means anything
  out.Gauge("clock_error_seconds", "Likely error of fleet time.", t.error_est_ns() / 1e9);
  out.Gauge("clock_bound_seconds",
            "Half-width of the interval that must contain the fleet time of any synchronised host of the timeline.",
            t.bound_ns() / 1e9);
  out.Gauge("clock_rate_ratio", "Rate of fleet time against the local clock, less 1.", t.rate_ppb() / 1e9);
  out.Gauge("clock_residual_seconds", "Root mean square of what the neighbours in use disagree by.",
            t.residual_ns() / 1e9);
  out.Gauge("clock_hops", "Links between the reference and this host.", t.hops());
  out.Gauge("clock_epoch", "Grows when fleet time was stepped here, or is another timeline's.", t.epoch());
  if (t.updated_ago_s() >= 0)
    out.Gauge("clock_update_age_seconds", "Since fleet time was updated last.", t.updated_ago_s());
  if (t.has_tai())
    out.Gauge("clock_tai_bound_seconds", "Bound of TAI as this host knows it.", t.tai().bound_ns() / 1e9);
}

const char* ReasonName(ClockSource::Reason reason) {
  switch (reason) {
    case ClockSource::REASON_USED:
      return "used";
    case ClockSource::REASON_TRIMMED:
      return "trimmed";
    case ClockSource::REASON_WAITING:
      return "waiting";
    case ClockSource::REASON_FALSE_TICKER:
      return "false_ticker";
    case ClockSource::REASON_JITTERY:
      return "jittery";
    case ClockSource::REASON_DISTANT:
      return "distant";
    case ClockSource::REASON_TIMELINE:
      return "timeline";
    case ClockSource::REASON_STALE:
      return "stale";
    default:
      return "unknown";
  }
}

}  // namespace

void AddClock(const ClockReply& clock, FamilyBuilder& out) {
  AddTracking(clock.tracking(), out);
  std::map<std::string, uint64_t> reasons;
  for (int reason = ClockSource::REASON_USED; reason <= ClockSource::REASON_STALE; ++reason)
    reasons[ReasonName(static_cast<ClockSource::Reason>(reason))] = 0;
  for (const ClockSource& source : clock.sources().sources()) ++reasons[ReasonName(source.reason())];
  for (const auto& [reason, count] : reasons) {
    out.Gauge("clock_sources", "Neighbours by why they are in use or not (cwctl clock sources).",
              static_cast<double>(count), {{"reason", reason}});
  }
  uint64_t suspects = 0;
  for (const v1::ClockLink& link : clock.mesh().links()) suspects += link.suspect().empty() ? 0 : 1;
  out.Gauge("clock_links_suspect", "Links whose offset disagrees with the rest (cwctl clock mesh).",
            static_cast<double>(suspects));
}

}  // namespace cw::metrics
