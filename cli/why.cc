// SPDX-License-Identifier: Apache-2.0
//
// cwctl why: where a flow is and why, or what is known of a path.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "cli/jobs.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/flow_ref.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

std::string PlacementText(const v1::WhyReply& why) {
  const v1::Flow& flow = why.flow();
  const std::string& placement = why.placement();
  if (placement == "received") return "it arrives here; the sender's agent places it";
  const bool forwarded = why.has_path();
  const std::string where = forwarded
                                ? absl::StrFormat("path %d, udp-port %d", why.path().path().slot(), flow.udp_port())
                                : absl::StrFormat("udp-port %d, a path that is not probed", flow.udp_port());
  const std::string ago = flow.moved_ago_s() < 0 ? "" : absl::StrCat(", ", DurationText(flow.moved_ago_s()), " ago");
  if (placement == "native") return absl::StrFormat("on its native port %d: %s", flow.udp_port_native(), where);
  if (placement == "owner_placed") return absl::StrCat("put there when it connected: ", where);
  if (placement == "owner_moved") return absl::StrCat("moved by its owner's library: ", where);
  if (placement == "operator") return absl::StrCat("placed by an operator: ", where, ago);
  if (placement == "assigned") return absl::StrCat("put there when it was new: ", where, ago);
  if (placement == "left_dead_path") return absl::StrCat("it left a dead path: ", where, ago);
  return absl::StrCat("moved (", flow.last_reason(), "): ", where, ago);
}

std::string GapText(const v1::DelayGap& gap) {
  if (gap.finding()) return gap.text();
  return absl::StrFormat(
      "its packets take %s, the probes on its path %s (p50)%s", NsText(gap.flow_p50_ns()), NsText(gap.mesh_p50_ns()),
      gap.lasting_s() > 0 ? absl::StrCat(": slower than its path for ", DurationText(gap.lasting_s())) : "");
}

std::string QueueText(const v1::WhyCandidate& path) { return path.queue_known() ? NsText(path.queue_ns()) : kNoValue; }

std::string MarkedText(const v1::WhyCandidate& path) {
  return path.marks_known() ? absl::StrFormat("%.1f %%", 100 * path.marked_share()) : kNoValue;
}

void ShowRule(const v1::WhyRule& rule, bool colour) {
  std::cout << Printable(absl::StrCat("balance  ", rule.text())) << '\n';
  if (!rule.has_here()) return;
  std::cout << absl::StrFormat(
      "         it sends %s; congested for %d windows in a row, %d are wanted, above %s of queue\n",
      RateText(rule.rate_bps()), rule.congested_windows(), rule.congested_wanted(),
      NsText(rule.here().queue_limit_ns()));
  Table table({">PATH", ">QUEUE", ">MARKED", ">OWN FLOWS", ">OTHERS", ">GAIN", "WHAT THE RULE SAYS"});
  table.Add({std::to_string(rule.here().slot()), QueueText(rule.here()), MarkedText(rule.here()),
             std::to_string(rule.here().own_flows()), absl::StrFormat("%.1f", rule.here().others()), kNoValue, "here"});
  for (const v1::WhyCandidate& c : rule.candidates()) {
    const std::string chance =
        c.enough() && c.probability() < 1 ? absl::StrFormat(", with probability %.2f per window", c.probability()) : "";
    table.Add({std::to_string(c.slot()),
               QueueText(c),
               MarkedText(c),
               std::to_string(c.own_flows()),
               absl::StrFormat("%.1f", c.others()),
               c.gain() > 0 ? absl::StrFormat("%.2f", c.gain()) : kNoValue,
               {absl::StrCat(c.text(), chance), c.enough() ? Tone::kGood : Tone::kPlain}});
  }
  table.Print(std::cout, colour, 9);
}

void ShowPath(const v1::WhyPath& why, bool colour) {
  const v1::Path& path = why.path();
  const Cell state = StateCell(path.state());
  std::cout << "path     "
            << Printable(
                   absl::StrFormat("%s/%d, udp-port %d from %s: ", why.peer(), path.slot(), path.udp_port(), why.nic()))
            << Paint(state.text, state.tone, colour)
            << Printable(absl::StrFormat(
                   "%s, %d flows, %d deaths, %d in the last hour",
                   path.last_change_ago_s() < 0 ? "" : absl::StrCat(" since ", DurationText(path.last_change_ago_s())),
                   path.flows(), path.deaths(), why.flaps()))
            << '\n';
  std::cout << Printable(absl::StrFormat("         table %s, %s; %s", why.table(), HashingText(why.hashing()),
                                         path.hops().empty() ? "hops not known" : absl::StrJoin(path.hops(), " ")))
            << '\n';
  std::vector<std::string> facts;
  if (path.base_forward_ns() > 0) facts.push_back(absl::StrCat("base ", NsText(path.base_forward_ns())));
  for (const v1::PathWindow& window : path.windows()) {
    if (window.queueing_forward().samples() > 0)
      facts.push_back(absl::StrCat("queueing p99 ", NsText(std::max(0.0, window.queueing_forward().p99_ns()))));
    if (window.known() > 0 && !window.agent_late()) facts.push_back(absl::StrCat("loss ", ShareText(window.loss())));
  }
  if (why.penalty() >= 1) facts.push_back(absl::StrFormat("penalty %.0f", why.penalty()));
  if (!facts.empty()) std::cout << "         " << absl::StrJoin(facts, ", ") << ", last 10 s\n";
}

void ShowHolds(const v1::WhyReply& why, bool colour) {
  const char* head = "held     ";
  for (const v1::WhyHold& hold : why.holds()) {
    std::cout << head << Paint(hold.text(), Tone::kWarn, colour);
    if (hold.left_s() > 0) std::cout << ", for another " << DurationText(hold.left_s());
    std::cout << '\n';
    head = "         ";
  }
}

void ShowEvents(const v1::WhyReply& why) {
  const char* head = "lately   ";
  for (const v1::WhyEvent& entry : why.events()) {
    const v1::Event& event = entry.event();
    std::cout << head << DurationText(entry.ago_s()) << " ago: " << (event.dry() ? "(observe) " : "")
              << Printable(event.text());
    std::vector<std::string> evidence;
    for (const v1::Evidence& e : event.evidence())
      evidence.push_back(Printable(absl::StrCat(e.name(), " ", e.value())));
    if (!evidence.empty()) std::cout << "  [" << absl::StrJoin(evidence, ", ") << "]";
    std::cout << '\n';
    head = "         ";
  }
}

absl::StatusOr<int> Why(Session& session, const std::string& what) {
  v1::WhyRequest request;
  request.set_what(what);
  absl::StatusOr<v1::WhyReply> reply = session.Agent().Why(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    const bool colour = session.Colour();
    if (reply->has_flow()) {
      const v1::Flow& flow = reply->flow();
      const std::string name = api::QpName(flow);
      const std::string peer = flow.peer().empty() ? flow.remote_address() : flow.peer();
      std::cout << Paint(absl::StrCat("flow     ", flow.id()), Tone::kTitle, colour)
                << Printable(absl::StrFormat("%s to %s, mode %s", name.empty() ? "" : ", " + name, peer,
                                             ModeText(reply->mode())))
                << '\n';
      std::cout << "now      " << Printable(PlacementText(*reply)) << '\n';
      if (flow.has_gap()) std::cout << "delay    " << Printable(GapText(flow.gap())) << '\n';
    }
    if (reply->has_collective()) std::cout << "job      " << Printable(CollectiveText(reply->collective())) << '\n';
    if (reply->has_path()) ShowPath(reply->path(), colour);
    ShowHolds(*reply, colour);
    if (reply->has_rule()) ShowRule(reply->rule(), colour);
    if (!reply->has_flow() && !reply->path().flows().empty())
      std::cout << "flows    " << absl::StrJoin(reply->path().flows(), " ") << '\n';
    ShowEvents(*reply);
  });
  return kOk;
}

}  // namespace

void AddWhyVerb(CLI::App& app, Session& session) {
  CLI::App* verb =
      app.add_subcommand("why", "Where a flow is and why, what holds it there, or what is known of a path");
  auto what = std::make_shared<std::string>();
  verb->add_option("what", *what, "A flow (its id, NIC/qp0x1a2b or a QPN), or PEER/PATH such as host3/2")
      ->type_name("FLOW|PEER/PATH")
      ->required();
  verb->callback([&session, what] { session.action = [&session, what] { return Why(session, *what); }; });
}

}  // namespace cw::cli
