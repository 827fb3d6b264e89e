// SPDX-License-Identifier: Apache-2.0
//
// cwctl status, cwctl counters.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verdict.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

class Page {
 public:
  explicit Page(bool colour) : colour_(colour) {}

  void Line(const std::string& title, const std::string& text, Tone tone = Tone::kPlain) const {
    std::cout << Paint(absl::StrFormat("%-9s", title), Tone::kTitle, colour_) << Paint(text, tone, colour_) << '\n';
  }
  void List(const Table& table) const {
    if (table.empty()) return;
    std::cout << '\n';
    table.Print(std::cout, colour_);
  }

 private:
  bool colour_;
};

std::string PathLine(const v1::PathCounts& paths) {
  std::vector<std::string> parts = {absl::StrFormat("%d up", paths.up())};
  auto add = [&parts](uint32_t count, const char* name) {
    if (count > 0) parts.push_back(absl::StrFormat("%d %s", count, name));
  };
  add(paths.suspect(), "suspect");
  add(paths.dead(), "dead");
  add(paths.paused(), "paused");
  add(paths.new_(), "new");
  return absl::StrJoin(parts, ", ");
}

std::string FlowLine(const v1::FlowCounts& flows) {
  return absl::StrFormat("%d sent, %d received; %d steered, %d locked, %s pending", flows.transmitted(),
                         flows.received(), flows.steered(), flows.locked(), Counted(flows.pending(), "move"));
}

// What may be done, and what holds it back.
void ShowMode(const v1::StatusReply& reply, const Page& page) {
  std::string mode = ModeText(reply.mode());
  if (reply.mode_reverts_s() > 0) mode += ", reverts in " + DurationText(reply.mode_reverts_s());
  mode += reply.lease_s() > 0 ? ", lease " + DurationText(reply.lease_s()) : ", no lease";
  if (reply.lease_found_over_s() > 0) {
    mode += absl::StrFormat(" (that of the agent before was over for %s when this one started)",
                            DurationText(reply.lease_found_over_s()));
  }
  std::string exceptions;
  for (const v1::CapabilityAllow& each : reply.allowed()) {
    if (each.allow() == each.by_mode()) continue;
    absl::StrAppend(&exceptions, exceptions.empty() ? "" : ", ", each.capability(), " ",
                    each.allow() == v1::ALLOW_ACT   ? "acts"
                    : each.allow() == v1::ALLOW_OFF ? "is off"
                                                    : "only observes");
  }
  page.Line("mode", mode, reply.mode() == v1::MODE_OFF ? Tone::kWarn : Tone::kPlain);
  if (!exceptions.empty()) page.Line("but", exceptions, Tone::kWarn);
  for (const v1::ModeScope& scope : reply.scopes()) {
    if (!scope.holds_back()) continue;
    page.Line(
        "scope",
        absl::StrCat(scope.text(), " at most ", ModeText(scope.mode()), scope.by_operator() ? ", by an operator" : "",
                     scope.reverts_s() > 0 ? ", reverts in " + DurationText(scope.reverts_s()) : ""),
        Tone::kWarn);
  }
  if (reply.breaker().tripped()) {
    page.Line(
        "breaker",
        absl::StrCat("tripped, nothing moves for balance: ", reply.breaker().text(),
                     reply.breaker().rearms_s() > 0 ? "; armed again in " + DurationText(reply.breaker().rearms_s())
                                                    : "; cwctl steer breaker reset"),
        Tone::kWarn);
  }
  if (reply.moves_frozen()) page.Line("frozen", "no moves for balance: " + reply.frozen_reason(), Tone::kWarn);
}

void ShowProbes(const v1::StatusReply& reply, const Page& page) {
  const v1::ProberStatus& prober = reply.prober();
  page.Line("probes",
            absl::StrFormat("%.0f/s of at most %.0f/s; lateness p50 %s, p99 %s; %s rounds skipped%s", prober.rate_pps(),
                            prober.budget_pps(), NsText(prober.lateness_p50_ns()), NsText(prober.lateness_p99_ns()),
                            CountText(prober.skipped()), prober.realtime() ? "" : "; not under SCHED_FIFO") +
                (prober.cpus().empty() ? "" : "; on CPUs " + prober.cpus()));
  if (prober.afforded_pps() > 0 && prober.afforded_pps() < prober.budget_pps()) {
    page.Line("probes",
              absl::StrFormat("held at %.0f/s, so that the prober keeps to its share of the processors "
                              "(probe.cpu_percent): a path that dies is noticed later",
                              prober.afforded_pps()),
              Tone::kWarn);
  }
  if (prober.slowed() > 1) {
    page.Line(
        "loop",
        absl::StrFormat("wakes %d times more seldom, so that the main thread keeps to its share of the processors "
                        "(probe.cpu_percent): flows are moved for balance later",
                        prober.slowed()),
        Tone::kWarn);
  }
}

void ShowVerbs(const v1::VerbsStatus& verbs, const Page& page) {
  page.Line(
      "verbs",
      absl::StrFormat("%d of %d remote NICs have told their queue pair; %s requests answered, turned "
                      "round in p50 %s, p99 %s; %.1f s of a core%s",
                      verbs.peers_known(), verbs.peers(), CountText(verbs.answered()), NsText(verbs.turn_p50_ns()),
                      NsText(verbs.turn_p99_ns()), verbs.cpu_s(), verbs.busy() ? ", busy" : ""),
      verbs.peers_known() < verbs.peers() ? Tone::kWarn : Tone::kPlain);
}

void ShowConfig(const v1::StatusReply& reply, const Page& page) {
  if (reply.keys().accepted_size() > 1 || reply.keys().send_id() != 0) {
    page.Line("keys", absl::StrFormat("sends with key id %d, accepts %s", reply.keys().send_id(),
                                      absl::StrJoin(reply.keys().accepted(), " and ")));
  }
  if (reply.has_config()) {
    std::string text =
        absl::StrCat(reply.config().fingerprint(), ", read ", AgoText(reply.config().loaded_ago_s()), " ago");
    const int waiting = reply.config().waiting_size();
    if (waiting > 0) absl::StrAppend(&text, "; waits for a restart: ", absl::StrJoin(reply.config().waiting(), ", "));
    page.Line("config", text, waiting > 0 ? Tone::kWarn : Tone::kPlain);
  }
}

void ShowHead(const v1::StatusReply& reply, const Page& page) {
  page.Line("agent", absl::StrFormat("%s, instance %s on %s, pid %d, up %s", reply.version(), reply.instance(),
                                     reply.host_name(), reply.pid(), DurationText(reply.uptime_s())));
  ShowMode(reply, page);
  page.Line("paths", PathLine(reply.paths()), reply.paths().dead() > 0 ? Tone::kBad : Tone::kPlain);
  page.Line("flows", FlowLine(reply.flows()));
  page.Line("fabric", HashingText(reply.hashing()));
  ShowProbes(reply, page);
  ShowConfig(reply, page);
  if (reply.has_caller() && reply.caller().role() != "admin")
    page.Line("you", absl::StrFormat("%s, with the role %s", reply.caller().name(), reply.caller().role()));
  if (reply.has_verbs()) ShowVerbs(reply.verbs(), page);
  page.Line("cost", absl::StrFormat("%.2f %% of a core (process %.2f %%), %s", reply.cpu_percent(),
                                    reply.cpu_process_percent(), BytesText(static_cast<double>(reply.rss_bytes()))));
  const v1::EventLoss& lost = reply.lost();
  if (lost.probe_ring() + lost.event_ring() + lost.message_ring() > 0) {
    page.Line("lost",
              absl::StrFormat("records: %s probe and sample, %s event, %s message", CountText(lost.probe_ring()),
                              CountText(lost.event_ring()), CountText(lost.message_ring())),
              Tone::kWarn);
  }
  page.Line("data", AgoText(reply.data_age_s()) + " old", reply.data_age_s() > 5 ? Tone::kWarn : Tone::kPlain);
}

std::string NicNote(const v1::NicStatus& nic) {
  std::vector<std::string> notes;
  if (!nic.trouble().empty()) notes.push_back(nic.trouble());
  if (!nic.note().empty()) notes.push_back(nic.note());
  if (nic.link_down()) notes.push_back("link down");
  if (!nic.transport_note().empty()) notes.push_back(nic.transport_note());
  if (nic.pairs_silent() > 0) {
    notes.push_back(absl::StrCat("out of reach for ", nic.pairs_silent(), " remote NICs, ", nic.pairs_carried(),
                                 " of them reached by another NIC"));
  }
  return absl::StrJoin(notes, "; ");
}

Table NicTable(const v1::StatusReply& reply) {
  Table table({"NIC", "ADDRESS", ">MTU B", "INGRESS", "EGRESS", "RDMA", "NOTE"});
  for (const v1::NicStatus& nic : reply.nics()) {
    const std::string rdma = absl::StrJoin(nic.rdma_devices(), ",") + (nic.offloads_roce() ? " (offloads)" : "");
    table.Add({nic.name(),
               nic.address(),
               std::to_string(nic.mtu()),
               {nic.ingress(), nic.ingress() == "native" ? Tone::kGood : Tone::kWarn},
               nic.egress(),
               rdma.empty() ? kNoValue : rdma,
               NicNote(nic)});
  }
  return table;
}

Table PeerTable(const v1::StatusReply& reply) {
  Table table({"PEER", "ADDRESSES", ">PAIRS", ">PATHS UP", ">FLOWS", ">LAST REPLY", "AGENT"});
  for (const v1::PeerStatus& peer : reply.peers()) {
    const bool whole = peer.paths_live() == peer.paths() && peer.paths() > 0;
    table.Add({peer.name(),
               absl::StrJoin(peer.addresses(), ","),
               std::to_string(peer.pairs()),
               {absl::StrFormat("%d/%d", peer.paths_live(), peer.paths()),
                whole ? Tone::kGood : (peer.paths_live() > 0 ? Tone::kWarn : Tone::kBad)},
               std::to_string(peer.flows()),
               AgoText(peer.last_reply_ago_s()),
               peer.version().empty() ? kNoValue : peer.version()});
  }
  return table;
}

Table MapTable(const v1::StatusReply& reply) {
  Table table({"MAP", ">USED", ">CAPACITY", ">FILL"});
  for (const v1::MapFill& map : reply.maps()) {
    const double fill = map.capacity() == 0 ? 0 : static_cast<double>(map.used()) / static_cast<double>(map.capacity());
    table.Add({map.name(),
               CountText(map.used()),
               CountText(map.capacity()),
               {ShareText(fill), fill > 0.9 ? Tone::kWarn : Tone::kPlain}});
  }
  return table;
}

template <typename Counters>
Table CounterTable(const Counters& counters, bool zeros) {
  Table table({">COUNT", "COUNTER", "WHAT"});
  for (const v1::Counter& counter : counters) {
    if (zeros || counter.value() > 0) table.Add({CountText(counter.value()), counter.name(), counter.text()});
  }
  return table;
}

absl::StatusOr<int> Status(Session& session) {
  absl::StatusOr<v1::StatusReply> reply = session.Agent().Status();
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    const Page page(session.Colour());
    const Verdict verdict = VerdictOf(*reply);
    page.Line("verdict", verdict.text, verdict.tone);
    ShowHead(*reply, page);
    page.List(NicTable(*reply));
    page.List(PeerTable(*reply));
    for (const v1::PeerStatus& peer : reply->peers()) {
      // That a host sends little to a peer is nothing to look at.
      if (peer.cause_text().empty() || peer.cause() == "slow sender") continue;
      page.Line(peer.name(), peer.cause() + ": " + peer.cause_text(), Tone::kWarn);
    }
    page.List(MapTable(*reply));
    page.List(CounterTable(reply->counters(), false));
  });
  return kOk;
}

absl::StatusOr<int> Counters(Session& session, bool all) {
  absl::StatusOr<v1::CountersReply> reply = session.Agent().Counters();
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    const Table table = CounterTable(reply->counters(), all);
    if (table.empty()) {
      std::cout << "all counters are zero; --all lists them\n";
    } else {
      table.Print(std::cout, session.Colour());
    }
  });
  return kOk;
}

}  // namespace

void AddStatusVerbs(CLI::App& app, Session& session) {
  CLI::App* status = app.add_subcommand("status", "The agent, its NICs, peers, paths, cost and counters");
  auto watch = std::make_shared<Session::Watch>();
  Session::AddWatch(*status, *watch);
  status->callback([&session, watch] {
    session.action = [&session, watch] { return session.Repeat(*watch, [&] { return Status(session); }); };
  });

  CLI::App* counters = app.add_subcommand("counters", "What the dataplane counted");
  auto all = std::make_shared<bool>(false);
  counters->add_flag("--all", *all, "Also those that are zero (JSON has them always)");
  counters->callback([&session, all] { session.action = [&session, all] { return Counters(session, *all); }; });
}

}  // namespace cw::cli
