// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sync/fleet_bound.h"
#include "sync/neighbours.h"
#include "sync/vote.h"

namespace cw::agent {
namespace {

namespace v1 = ::cwfabric::v1;

using sync::Reason;
using sync::SyncState;

// A residual beyond this multiple of what is likely is no noise.
constexpr double kSuspectRatio = 3;

double AgoS(int64_t now_ns, int64_t then_ns) {
  return then_ns == INT64_MIN ? -1 : std::max(static_cast<double>(now_ns - then_ns) / 1e9, 0.0);
}

v1::PeerClock::State LinkState(SyncState state) {
  switch (state) {
    case SyncState::kSynchronised:
      return v1::PeerClock::STATE_SYNCED;
    case SyncState::kFreeRunning:
      return v1::PeerClock::STATE_HOLDOVER;
    case SyncState::kUnknown:
      break;
  }
  return v1::PeerClock::STATE_UNKNOWN;
}

v1::ClockTracking::State ClaimState(SyncState state) {
  switch (state) {
    case SyncState::kSynchronised:
      return v1::ClockTracking::STATE_SYNCHRONISED;
    case SyncState::kFreeRunning:
      return v1::ClockTracking::STATE_FREE_RUNNING;
    case SyncState::kUnknown:
      break;
  }
  return v1::ClockTracking::STATE_UNKNOWN;
}

v1::ClockTracking::State StateOf(const sync::FleetTime& time) {
  if (time.trouble == sync::FleetTrouble::kDisrupted) return v1::ClockTracking::STATE_DISRUPTED;
  if (time.state == sync::SyncState::kUnknown && time.trouble == sync::FleetTrouble::kSplit)
    return v1::ClockTracking::STATE_SPLIT;
  if (time.state == sync::SyncState::kUnknown && time.trouble == sync::FleetTrouble::kMerging)
    return v1::ClockTracking::STATE_MERGING;
  return ClaimState(time.state);
}

v1::ClockSource::Reason ReasonOf(Reason reason) {
  switch (reason) {
    case Reason::kUsed:
      return v1::ClockSource::REASON_USED;
    case Reason::kTrimmed:
      return v1::ClockSource::REASON_TRIMMED;
    case Reason::kWaiting:
      return v1::ClockSource::REASON_WAITING;
    case Reason::kFalseTicker:
      return v1::ClockSource::REASON_FALSE_TICKER;
    case Reason::kJittery:
      return v1::ClockSource::REASON_JITTERY;
    case Reason::kDistant:
      return v1::ClockSource::REASON_DISTANT;
    case Reason::kTimeline:
      return v1::ClockSource::REASON_TIMELINE;
    case Reason::kStale:
      return v1::ClockSource::REASON_STALE;
  }
  return v1::ClockSource::REASON_UNSPECIFIED;
}

// How fast two fleet times may part: the local clock's drift, and the other's slew.
double GrowthPpb() {
  const sync::AgreementOptions options;
  return options.max_drift_ppb + static_cast<double>(options.max_slew_ppb);
}

// What the bound has grown to since the round.
double BoundNow(const sync::FleetTime& time, int64_t now_ns) {
  const double age_ns = std::abs(static_cast<double>(now_ns - time.anchor_ns));
  return static_cast<double>(time.bound_ns) + age_ns * GrowthPpb() * 1e-9;
}

void FillTracking(const FleetClock& clock, int64_t now_ns, v1::ClockTracking& out) {
  const sync::FleetTime& time = clock.now();
  const sync::FleetClaim claim = clock.agreement().Claim();
  out.set_host_name(clock.host());
  out.set_state(StateOf(time));
  out.set_why(TroubleText(time));
  out.set_timeline(TimelineName(claim.timeline));
  out.set_epoch(time.epoch);
  out.set_local_ns(now_ns);
  out.set_fleet_ns(time.ToFleetNs(now_ns));
  out.set_offset_ns(out.fleet_ns() - now_ns);
  out.set_rate_ppb(time.slope_ppb);
  out.set_error_est_ns(static_cast<double>(time.error_est_ns));
  out.set_bound_ns(BoundNow(time, now_ns));
  out.set_reference(time.reference);
  out.set_hops(claim.hops);
  out.set_line_ns(time.anchor_ns);
  out.set_line_offset_ns(time.offset_ns);
  double squares = 0;
  for (const FleetClock::Neighbour& n : clock.neighbours()) {
    if (n.verdict.reason != Reason::kUsed) continue;
    out.set_neighbours_used(out.neighbours_used() + 1);
    squares += n.verdict.disagreement_ns * n.verdict.disagreement_ns;
  }
  if (out.neighbours_used() > 0) out.set_residual_ns(std::sqrt(squares / out.neighbours_used()));
  out.set_neighbours(static_cast<uint32_t>(clock.neighbours().size()));
  out.set_peers(static_cast<uint32_t>(clock.peers()));
  out.set_updated_ago_s(AgoS(now_ns, clock.round_ns()));
  if (claim.tai_bound_ns < 0) return;
  v1::ClockTai& tai = *out.mutable_tai();
  tai.set_offset_ns(claim.tai_offset_ns);
  tai.set_bound_ns(static_cast<double>(claim.tai_bound_ns));
  tai.set_hops(claim.tai_hops);
  tai.set_now_ns(clock.agreement().tai().ToTaiNs(out.fleet_ns()));
}

// Records tell of hosts by the hash of their names.
std::string AnchorHost(const FleetClock& clock, uint64_t id) {
  if (sync::HostId(clock.host()) == id) return clock.host();
  for (const FleetClock::Neighbour& n : clock.neighbours()) {
    if (sync::HostId(n.name) == id) return n.name;
  }
  return sync::HostLabel(id);
}

void FillAnchors(const FleetClock& clock, v1::ClockSources& out) {
  for (const sync::AnchorVerdict& a : clock.agreement().anchors()) {
    v1::ClockAnchor& anchor = *out.add_anchors();
    anchor.set_host(AnchorHost(clock, a.anchor_id));
    anchor.set_reason(ReasonOf(a.reason));
    anchor.set_letter(std::string(1, static_cast<char>(a.reason)));
    anchor.set_offset_ns(a.offset_ns);
    anchor.set_bound_ns(static_cast<double>(a.bound_ns));
    anchor.set_hops(a.hops);
    anchor.set_smears(a.smears);
    anchor.set_contradicts(a.contradicts);
    anchor.set_stepped(a.stepped);
  }
}

void FillSources(const FleetClock& clock, int64_t now_ns, v1::ClockSources& out) {
  for (const FleetClock::Neighbour& n : clock.neighbours()) {
    v1::ClockSource& source = *out.add_sources();
    source.set_name(n.name);
    source.set_reason(ReasonOf(n.verdict.reason));
    source.set_letter(std::string(1, static_cast<char>(n.verdict.reason)));
    source.set_disagreement_ns(n.verdict.disagreement_ns);
    source.set_weight(n.verdict.weight);
    source.set_claim_ago_s(n.heard ? AgoS(now_ns, n.claimed_ns) : -1);
    if (n.linked) {
      *source.mutable_link() = ToApi(n.link.estimate, clock.round_ns());
      source.set_min_rtt_ns(static_cast<double>(n.link.estimate.min_rtt_ns));
      source.set_link_epoch(n.link.estimate.epoch);
      source.set_address(n.link.address);
      source.set_nic(n.link.nic);
      source.set_stamps(n.link.by_nics ? "hardware" : "software");
    }
    if (!n.heard) continue;
    source.set_state(ClaimState(n.claim.state));
    source.set_timeline(TimelineName(n.claim.timeline));
    source.set_error_est_ns(static_cast<double>(n.claim.error_est_ns));
    source.set_bound_ns(static_cast<double>(n.claim.width_ns));
    source.set_hops(n.claim.hops);
  }
  FillAnchors(clock, out);
}

// A star shows that an end or the path between is wrong, not which of them.
std::string SuspectText(const FleetClock::Neighbour& n, double residual_ns) {
  return absl::StrFormat("one way is slower than the other by %.0f ns, or %s is wrong about its clock",
                         2 * std::abs(residual_ns), n.name);
}

// Links between others, as they tell of them, held against all that is known.
void FillHeardLinks(const FleetClock& clock, int64_t now_ns, std::vector<std::string>& suspects, v1::ClockMesh& out) {
  const MeshAudit audit = clock.Audit(now_ns);
  for (const AuditedLink& heard : audit.links) {
    if (heard.from == clock.host()) continue;
    v1::ClockLink& link = *out.add_links();
    link.set_from(heard.from);
    link.set_to(heard.to);
    link.set_heard(true);
    link.set_error_est_ns(static_cast<double>(heard.error_ns));
    link.set_residual_ns(heard.residual_ns);
    link.set_ratio(heard.deviations);
    if (!heard.suspect) continue;
    link.set_suspect(absl::StrFormat("one way is slower than the other by %.0f ns, or an end is wrong about its clock",
                                     2 * std::abs(heard.residual_ns)));
    suspects.push_back(absl::StrCat(heard.from, "–", heard.to));
  }
  for (const std::string& host : audit.suspect_hosts) out.add_suspect_hosts(host);
}

void FillMesh(const FleetClock& clock, int64_t now_ns, v1::ClockMesh& out) {
  std::vector<std::string> suspects;
  for (const FleetClock::Neighbour& n : clock.neighbours()) {
    if (!n.linked || n.link.estimate.state == SyncState::kUnknown) continue;
    const sync::Estimate& e = n.link.estimate;
    v1::ClockLink& link = *out.add_links();
    link.set_from(clock.host());
    link.set_to(n.name);
    link.set_pair(n.link.pair);
    link.set_offset_ns(e.offset_ns);
    link.set_rate_ppb(e.slope_ppb);
    link.set_error_est_ns(static_cast<double>(e.error_est_ns));
    link.set_bound_ns(static_cast<double>(e.bound_ns));
    link.set_min_rtt_ns(static_cast<double>(e.min_rtt_ns));
    if (!FleetClock::Compared(n)) continue;
    // Its fleet time − ours = (what the link says of its local clock) + its offset − ours.
    link.set_residual_ns(n.verdict.disagreement_ns);
    link.set_ratio(std::abs(link.residual_ns()) / clock.LikelyErrorNs(n));
    if (link.ratio() <= kSuspectRatio && n.verdict.reason != Reason::kFalseTicker) continue;
    link.set_suspect(SuspectText(n, link.residual_ns()));
    suspects.push_back(absl::StrCat(clock.host(), "–", n.name));
  }
  FillHeardLinks(clock, now_ns, suspects, out);
  if (!suspects.empty()) {
    out.set_suspects(absl::StrCat(absl::StrJoin(suspects, ", "), suspects.size() == 1 ? " disagrees" : " disagree",
                                  " with the rest"));
  }
}

void FillBound(const FleetClock& clock, int64_t now_ns, v1::ClockBound& out) {
  const sync::FleetTime& time = clock.now();
  if (time.state == SyncState::kUnknown || time.reference.empty()) return;
  if (static_cast<double>(time.bound_ns) >= sync::kNowhereNs) return;  // not known yet
  out.set_bound_ns(BoundNow(time, now_ns));
  out.set_reference(time.reference);
  double left_ns = out.bound_ns();
  auto add = [&](const std::string& name, double ns, const std::string& text) {
    v1::ClockBoundTerm& term = *out.add_terms();
    term.set_name(name);
    term.set_ns(ns);
    term.set_text(text);
    left_ns -= ns;
  };
  const double width_ns = clock.agreement().width_ns();
  const int hops = clock.agreement().bound_hops();
  const size_t neighbours = clock.neighbours().size();
  const int liars = clock.agreement().most_liars();
  add("one link", width_ns,
      absl::StrFormat("neighbours are at most so far apart: what %d of %d show or tell at least", liars + 1,
                      neighbours));
  if (hops > 1) {
    const double links_ns = clock.agreement().bound_ns() - width_ns;
    add("further links", links_ns,
        absl::StrFormat("any of the %d hosts is at most %d links away, if a third of each host's neighbours lies",
                        clock.peers() + 1, hops));
  }
  add("since the last round", BoundNow(time, now_ns) - static_cast<double>(time.bound_ns),
      absl::StrFormat("drift and slew of at most %.0f ppm over %.0f ms", GrowthPpb() / 1e3,
                      AgoS(now_ns, time.anchor_ns) * 1e3));
  if (std::abs(left_ns) >= 1) {
    add("local clock", left_ns, "what the local clock may be off since its slew changed");
  }
}

}  // namespace

v1::PeerClock ToApi(const sync::Estimate& estimate, int64_t at_ns) {
  v1::PeerClock out;
  out.set_local_ns(at_ns);
  out.set_state(LinkState(estimate.state));
  out.set_offset_ns(estimate.offset_ns);
  out.set_slope_ppb(estimate.slope_ppb);
  out.set_error_est_ns(static_cast<double>(estimate.error_est_ns));
  out.set_bound_ns(static_cast<double>(estimate.bound_ns));
  out.set_age_s(static_cast<double>(estimate.age_ns) / 1e9);
  return out;
}

v1::ClockReply MakeClockReply(const FleetClock& clock, int64_t now_ns, const std::string& anchor,
                              const std::string& anchor_note) {
  v1::ClockReply reply;
  FillTracking(clock, now_ns, *reply.mutable_tracking());
  reply.mutable_tracking()->set_anchor(anchor);
  reply.mutable_tracking()->set_anchor_note(anchor_note);
  FillSources(clock, now_ns, *reply.mutable_sources());
  FillMesh(clock, now_ns, *reply.mutable_mesh());
  FillBound(clock, now_ns, *reply.mutable_bound());
  return reply;
}

}  // namespace cw::agent
