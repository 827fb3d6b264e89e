// SPDX-License-Identifier: Apache-2.0
//
// cwctl clock: fleet time as this host has it, and why it is believed.
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct ClockOptions {
  std::string name;
  bool legend = false;
  Session::Watch watch;
};

using Verb = absl::StatusOr<int> (*)(Session&, const ClockOptions&, const v1::ClockReply&);

// Clocks agree to nanoseconds: below a microsecond those are shown.
std::string SmallText(double ns) {
  if (!std::isfinite(ns)) return kNoValue;
  return std::fabs(ns) < 999.5 ? absl::StrFormat("%.0f ns", ns) : NsText(ns);
}

std::string SignedText(double ns) { return (ns >= 0 ? "+" : "") + SmallText(ns); }

// All digits: the offset of two free clocks is large, and its last digits matter.
std::string OffsetText(int64_t ns) {
  const auto size = ns < 0 ? ~static_cast<uint64_t>(ns) + 1 : static_cast<uint64_t>(ns);
  return (ns < 0 ? "-" : "+") + CountText(size) + " ns";
}

std::string SecondsText(int64_t ns) {
  return absl::StrFormat("%s%d.%09d s", ns < 0 ? "-" : "", std::llabs(ns / 1'000'000'000),
                         std::llabs(ns % 1'000'000'000));
}

std::string TimelineText(const std::string& timeline) { return timeline.empty() ? kNoValue : timeline; }

Cell StateCell(v1::ClockTracking::State state) {
  switch (state) {
    case v1::ClockTracking::STATE_SYNCHRONISED:
      return {"synchronised", Tone::kGood};
    case v1::ClockTracking::STATE_FREE_RUNNING:
      return {"free-running", Tone::kWarn};
    case v1::ClockTracking::STATE_DISRUPTED:
      return {"disrupted", Tone::kBad};
    case v1::ClockTracking::STATE_SPLIT:
      return {"split", Tone::kBad};
    case v1::ClockTracking::STATE_MERGING:
      return {"merging", Tone::kWarn};
    default:
      return {"unknown", Tone::kBad};
  }
}

Tone ClockTone(v1::ClockSource::Reason reason) {
  switch (reason) {
    case v1::ClockSource::REASON_USED:
      return Tone::kGood;
    case v1::ClockSource::REASON_FALSE_TICKER:
      return Tone::kBad;
    case v1::ClockSource::REASON_TRIMMED:
    case v1::ClockSource::REASON_WAITING:
      return Tone::kPlain;
    default:
      return Tone::kWarn;
  }
}

std::string TaiText(const v1::ClockTracking& t) {
  if (!t.has_tai()) return "not known: no anchor within reach";
  const std::string now =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E9S", absl::FromUnixNanos(t.tai().now_ns()), absl::UTCTimeZone());
  const std::string from =
      t.tai().hops() == 0 ? "this host's anchor"
                          : absl::StrFormat("an anchor %d link%s away", t.tai().hops(), t.tai().hops() == 1 ? "" : "s");
  return absl::StrFormat("%s, within %s, from %s", now, SmallText(t.tai().bound_ns()), from);
}

std::string AnchorText(const v1::ClockTracking& t) {
  if (t.anchor().empty() || t.anchor() == "none") return "none";
  return t.anchor_note().empty() ? t.anchor() : absl::StrFormat("%s, not used: %s", t.anchor(), t.anchor_note());
}

std::string BoundText(double bound_ns, const std::string& timeline) {
  if (timeline.empty()) return kNoValue;
  return absl::StrFormat("%s from the fleet time of any host on this timeline", SmallText(bound_ns));
}

absl::StatusOr<int> Tracking(Session& session, const ClockOptions&, const v1::ClockReply& reply) {
  const v1::ClockTracking& t = reply.tracking();
  session.Show(t, [&] {
    auto line = [&](const char* title, const std::string& text, Tone tone = Tone::kPlain) {
      std::cout << Paint(absl::StrFormat("%-12s", title), Tone::kTitle, session.Colour())
                << Paint(text, tone, session.Colour()) << '\n';
    };
    const Cell state = StateCell(t.state());
    const bool usable =
        t.state() == v1::ClockTracking::STATE_SYNCHRONISED || t.state() == v1::ClockTracking::STATE_FREE_RUNNING;
    line("host", t.host_name());
    line("state", t.why().empty() ? state.text : state.text + ": " + t.why(), state.tone);
    line("timeline", absl::StrFormat("%s, epoch %d", TimelineText(t.timeline()), t.epoch()));
    if (usable) {
      line("fleet time", SecondsText(t.fleet_ns()));
      line("offset",
           absl::StrFormat("%s from the local clock, rate %+.3f ppb", OffsetText(t.offset_ns()), t.rate_ppb()));
      line("error", absl::StrFormat("within %s, likely", SmallText(t.error_est_ns())));
      line("bound", BoundText(t.bound_ns(), t.timeline()));
    }
    if (std::abs(t.slew_ppb()) >= 1)
      line("slew",
           absl::StrFormat("CLOCK_MONOTONIC is slewed by %+.3f ppm; the local clock is not", t.slew_ppb() / 1e3));
    line("residual", t.neighbours_used() == 0 ? kNoValue : SmallText(t.residual_ns()) + " root mean square");
    line("neighbours", absl::StrFormat("%d used of %d compared with, %d peers configured", t.neighbours_used(),
                                       t.neighbours(), t.peers()));
    line("TAI", TaiText(t));
    line("anchor", AnchorText(t));
    if (!t.chrony().empty()) {
      line("chrony", t.chrony() == "fed"
                         ? absl::StrFormat("fed with TAI, %s samples so far", CountText(t.chrony_samples()))
                         : t.chrony());
    }
    line("updated", t.updated_ago_s() < 0 ? "never" : AgoText(t.updated_ago_s()) + " ago");
  });
  return kOk;
}

constexpr char kLegend[] =
    "  .-- * used, + left out as an extreme, w too few measurements yet, x false ticker: contradicts the majority,\n"
    " /    ~ link too jittery, d bound too large, t on another timeline, s nothing heard for too long\n"
    "|     LINK: its local clock − ours. DISAGREES: its fleet time − ours, likely true to ERROR, surely to BOUND.\n"
    "|     RTT: lowest round trip. CLAIM: since it said its fleet time. EPOCH: steps found on the link.\n";

std::string AnchorNote(const v1::ClockAnchor& anchor) {
  std::vector<std::string> notes;
  if (anchor.smears()) notes.push_back("smears a leap second");
  if (anchor.contradicts() && !anchor.smears()) notes.push_back("contradicts another");
  if (anchor.stepped()) notes.push_back("stepped, has no vote");
  return absl::StrJoin(notes, ", ");
}

// Where TAI is not known they are held against the first of them.
void ShowAnchors(const v1::ClockSources& shown, const v1::ClockTracking& tracking, bool colour) {
  if (shown.anchors().empty()) return;
  const int64_t tai_ns = tracking.has_tai() ? tracking.tai().offset_ns() : shown.anchors(0).offset_ns();
  std::cout << '\n';
  Table table({"S", "ANCHOR", tracking.has_tai() ? ">FROM TAI" : ">FROM FIRST", ">BOUND", ">LINKS", "NOTE"});
  for (const v1::ClockAnchor& a : shown.anchors()) {
    table.Add({{a.letter(), ClockTone(a.reason())},
               a.host(),
               SignedText(static_cast<double>(a.offset_ns() - tai_ns)),
               SmallText(a.bound_ns()),
               std::to_string(a.hops()),
               {AnchorNote(a), a.smears() ? Tone::kWarn : Tone::kPlain}});
  }
  table.Print(std::cout, colour);
}

absl::StatusOr<int> Sources(Session& session, const ClockOptions& options, const v1::ClockReply& reply) {
  v1::ClockSources shown;
  for (const v1::ClockSource& source : reply.sources().sources()) {
    if (options.name.empty() || options.name == source.name()) *shown.add_sources() = source;
  }
  if (!options.name.empty() && shown.sources().empty()) {
    return absl::NotFoundError(
        absl::StrFormat("there is no peer %s to compare clocks with; see cwctl clock sources", options.name));
  }
  if (options.name.empty()) *shown.mutable_anchors() = reply.sources().anchors();
  session.Show(shown, [&] {
    if (shown.sources().empty()) std::cout << "no peer is configured: nothing to compare the clock with\n";
    if (shown.sources().empty()) return ShowAnchors(shown, reply.tracking(), session.Colour());
    if (options.legend) std::cout << kLegend;
    Table table({"S", "NAME", ">LINK", ">DISAGREES", ">ERROR", ">BOUND", ">RTT", ">CLAIM", ">EPOCH", ">WEIGHT", "STATE",
                 "TIMELINE"});
    for (const v1::ClockSource& s : shown.sources()) {
      const bool measured = s.link().state() != v1::PeerClock::STATE_UNKNOWN;
      const bool compared = measured && s.claim_ago_s() >= 0 && s.reason() != v1::ClockSource::REASON_TIMELINE &&
                            s.reason() != v1::ClockSource::REASON_WAITING;
      table.Add({{s.letter(), ClockTone(s.reason())},
                 s.name(),
                 measured ? OffsetText(s.link().offset_ns()) : kNoValue,
                 compared ? SignedText(s.disagreement_ns()) : kNoValue,
                 measured ? SmallText(s.link().error_est_ns()) : kNoValue,
                 measured ? SmallText(s.link().bound_ns()) : kNoValue,
                 measured ? SmallText(s.min_rtt_ns()) : kNoValue,
                 AgoText(s.claim_ago_s()),
                 std::to_string(s.link_epoch()),
                 absl::StrFormat("%.2f", s.weight()),
                 s.claim_ago_s() < 0 ? Cell(kNoValue) : StateCell(s.state()),
                 TimelineText(s.timeline())});
    }
    table.Print(std::cout, session.Colour());
    ShowAnchors(shown, reply.tracking(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> Mesh(Session& session, const ClockOptions&, const v1::ClockReply& reply) {
  const v1::ClockMesh& mesh = reply.mesh();
  session.Show(mesh, [&] {
    if (mesh.links().empty()) std::cout << "no link is measured yet\n";
    if (mesh.links().empty()) return;
    Table table({"FROM", "TO", ">OFFSET", ">RATE", ">ERROR", ">BOUND", ">RTT", ">RESIDUAL", ">÷ LIKELY", "SUSPECT"});
    for (const v1::ClockLink& l : mesh.links()) {
      const bool known = l.ratio() > 0;
      const Tone tone = l.suspect().empty() ? Tone::kPlain : Tone::kBad;
      table.Add({l.from(),
                 l.to(),
                 l.heard() ? kNoValue : OffsetText(l.offset_ns()),
                 l.heard() ? kNoValue : absl::StrFormat("%+.1f ppb", l.rate_ppb()),
                 SmallText(l.error_est_ns()),
                 l.heard() ? kNoValue : SmallText(l.bound_ns()),
                 l.heard() ? kNoValue : SmallText(l.min_rtt_ns()),
                 {known ? SignedText(l.residual_ns()) : kNoValue, tone},
                 {known ? absl::StrFormat("%.1f", l.ratio()) : kNoValue, tone},
                 {l.suspect(), tone}});
    }
    table.Print(std::cout, session.Colour());
    std::cout << '\n' << (mesh.suspects().empty() ? "no suspects" : Printable(mesh.suspects())) << '\n';
    for (const std::string& host : mesh.suspect_hosts()) {
      std::cout << "most links of " << Printable(host) << " disagree: the fault is there\n";
    }
  });
  return kOk;
}

absl::StatusOr<int> Nics(Session& session, const ClockOptions&, const v1::ClockReply& reply) {
  v1::ClockReply shown;
  *shown.mutable_nics() = reply.nics();
  session.Show(shown, [&] {
    Table table(
        {"NIC", "CLOCK", ">AHEAD", ">RATE", ">ERROR", ">BOUND", ">READ", ">READS", ">FAILED", "ARRIVALS", "NOTE"});
    for (const v1::ClockNic& nic : shown.nics()) {
      const bool tied = nic.tie().state() != v1::PeerClock::STATE_UNKNOWN;
      const bool by_nic = nic.stamps() && nic.converted();
      table.Add({nic.name(),
                 nic.source().empty() ? kNoValue : nic.source(),
                 tied ? OffsetText(nic.tie().offset_ns()) : kNoValue,
                 tied ? absl::StrFormat("%+.1f ppb", nic.tie().slope_ppb()) : kNoValue,
                 tied ? SmallText(nic.tie().error_est_ns()) : kNoValue,
                 tied ? SmallText(nic.tie().bound_ns()) : kNoValue,
                 tied ? SmallText(nic.read_ns()) : kNoValue,
                 CountText(nic.reads()),
                 {CountText(nic.failed()), nic.failed() > nic.reads() / 10 ? Tone::kWarn : Tone::kPlain},
                 by_nic ? "by the NIC" : "by software",
                 nic.note()});
    }
    table.Print(std::cout, session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> Bound(Session& session, const ClockOptions&, const v1::ClockReply& reply) {
  const v1::ClockBound& bound = reply.bound();
  session.Show(bound, [&] {
    if (bound.terms().empty()) std::cout << "no bound: fleet time is not known here; see cwctl clock tracking\n";
    if (bound.terms().empty()) return;
    Table table({">BOUND", "TERM", "FROM"});
    for (const v1::ClockBoundTerm& term : bound.terms()) {
      table.Add({SmallText(term.ns()), term.name(), term.text()});
    }
    table.Add({{SmallText(bound.bound_ns()), Tone::kTitle},
               {"in all", Tone::kTitle},
               "distance from the fleet time of any synchronised host on this timeline"});
    table.Print(std::cout, session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> Once(Session& session, const ClockOptions& options, Verb run) {
  absl::StatusOr<v1::ClockReply> reply = session.Agent().Clock();
  if (!reply.ok()) return reply.status();
  return run(session, options, *reply);
}

std::shared_ptr<ClockOptions> Add(CLI::App& group, Session& session, const char* name, const char* text, Verb run) {
  CLI::App* verb = group.add_subcommand(name, text);
  auto options = std::make_shared<ClockOptions>();
  Session::AddWatch(*verb, options->watch);
  verb->callback([&session, options, run] {
    session.action = [&session, options, run] {
      return session.Repeat(options->watch, [&] { return Once(session, *options, run); });
    };
  });
  return options;
}

}  // namespace

void AddClockVerbs(CLI::App& app, Session& session) {
  CLI::App* clock = app.add_subcommand("clock", "Fleet time: its state, whom it rests on, its error and bound");
  clock->require_subcommand(1);
  clock->footer("cwctl clock tracking is where to begin.");
  Add(*clock, session, "tracking", "Fleet time on this host: state, offset, rate, error, bound, TAI", Tracking);
  auto options = Add(*clock, session, "sources", "The neighbours, and why each is used or not", Sources);
  CLI::App* sources = clock->get_subcommand("sources");
  sources->add_option("name", options->name, "A peer's name; all without it")->type_name("NAME");
  sources->add_flag("-v,--verbose", options->legend, "Say what the letters and columns mean");
  Add(*clock, session, "mesh",
      "The links of this host and of its neighbours with their residuals; which are suspected of an asymmetry", Mesh);
  Add(*clock, session, "nics", "This host's NICs: their own clocks, and who stamps the arrival of probes", Nics);
  Add(*clock, session, "bound", "Where the bound comes from, term by term", Bound);
}

}  // namespace cw::cli
