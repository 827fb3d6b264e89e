// SPDX-License-Identifier: Apache-2.0
//
// cwctl why --host HOST: where that host's flows are and what is wrong on their way, as the fleet service knows it,
// also of then. docs/fleet.md.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"
#include "userspace/api/json.h"
#include "userspace/model/flow.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
constexpr int kMostFlows = 8;
constexpr uint32_t kMostEvents = 500, kMostFindings = 10'000;
constexpr int64_t kEventsBackNs = 900'000'000'000;
constexpr size_t kMostEventsShown = 10;

// All that is asked for; the flows are those that were meant.
struct Known {
  v1::FleetWorkReply work;
  v1::FleetPathsReply paths;
  v1::FleetFindingsReply findings;
  v1::FleetTopologyReply topology;
  v1::FleetEventsReply events;
};

std::string IdOf(const v1::FleetFlow& flow) {
  const absl::StatusOr<Addr> local = Addr::Parse(flow.local()), remote = Addr::Parse(flow.remote());
  if (!local.ok() || !remote.ok() || flow.peer_qpn() == 0) return "";
  return FlowKey{.src = *local, .dst = *remote, .dqpn = flow.peer_qpn()}.Id().ToString();
}

// A flow's id, one of its queue pairs' numbers, its peer's name or address.
bool IsMeant(const v1::FleetFlow& flow, const std::string& what) {
  if (what == IdOf(flow) || what == flow.peer() || what == flow.remote()) return true;
  uint32_t qpn = 0;
  const bool number = absl::StartsWith(what, "0x") ? absl::SimpleHexAtoi(what, &qpn) : absl::SimpleAtoi(what, &qpn);
  return number && qpn != 0 && (flow.qpn() == qpn || flow.peer_qpn() == qpn);
}

absl::Status KeepMeant(const std::string& host, const std::string& what, v1::FleetWorkReply& work) {
  auto* flows = work.mutable_flows();
  flows->erase(
      std::remove_if(flows->begin(), flows->end(), [&](const v1::FleetFlow& flow) { return !IsMeant(flow, what); }),
      flows->end());
  if (!flows->empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      host, " told of no flow ", what,
      " with traffic at that time; give a flow's id, a QPN, or its peer's name or address; see cwctl qps --host ",
      host));
}

absl::StatusOr<Known> Ask(api::FleetClient& client, const Session& session, const std::string& what) {
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  Known known;
  const auto ask = [&](auto request, auto method, auto& reply) -> absl::Status {
    auto answer = (client.*method)(request);
    if (answer.ok()) reply = *std::move(answer);
    return answer.status();
  };
  v1::FleetWorkRequest work;
  work.set_host(session.fleet_host);
  work.set_at_ns(*at);
  work.set_flows(true);
  if (absl::Status s = ask(work, &api::FleetClient::Work, known.work); !s.ok()) return s;
  if (absl::Status s = KeepMeant(session.fleet_host, what, known.work); !s.ok()) return s;
  v1::FleetPathsRequest paths;
  paths.set_host(session.fleet_host);
  paths.set_at_ns(*at);
  if (absl::Status s = ask(paths, &api::FleetClient::Paths, known.paths); !s.ok()) return s;
  v1::FleetFindingsRequest findings;
  findings.set_at_ns(*at);
  findings.set_limit(kMostFindings);
  if (absl::Status s = ask(findings, &api::FleetClient::Findings, known.findings); !s.ok()) return s;
  v1::FleetTopologyRequest topology;
  topology.set_at_ns(*at);
  if (absl::Status s = ask(topology, &api::FleetClient::Topology, known.topology); !s.ok()) return s;
  v1::FleetEventsRequest events;
  events.set_host(session.fleet_host);
  events.set_from_ns((*at == 0 ? absl::GetCurrentTimeNanos() : *at) - kEventsBackNs);
  events.set_to_ns(*at == 0 ? 0 : *at + 1);
  events.set_newest_first(true);
  events.set_limit(kMostEvents);
  if (absl::Status s = ask(events, &api::FleetClient::Events, known.events); !s.ok()) return s;
  return known;
}

// The addresses that a flow's packets pass, its NICs among them.
std::set<std::string> WayOf(const v1::FleetFlow& flow) {
  std::set<std::string> way(flow.hops().begin(), flow.hops().end());
  way.insert({flow.local(), flow.remote()});
  return way;
}

bool IsOn(const v1::FleetFinding& finding, const v1::FleetFlow& flow, const v1::FleetTopologyReply& topology) {
  const std::set<std::string> way = WayOf(flow);
  if (finding.scope() == "host " + flow.host() || finding.scope() == "host " + flow.peer()) return true;
  if (finding.scope() == "NIC " + flow.local() || finding.scope() == "NIC " + flow.remote()) return true;
  // A NIC by its name there, which the flow does not tell.
  for (const std::string& host : {flow.host(), flow.peer()}) {
    if (!host.empty() && absl::EndsWith(finding.scope(), " of " + host)) return true;
  }
  for (const v1::FleetSwitch& s : topology.switches()) {
    if (finding.scope() != "switch " + s.name()) continue;
    return std::any_of(s.addresses().begin(), s.addresses().end(), [&](const auto& a) { return way.contains(a); });
  }
  return std::any_of(finding.links().begin(), finding.links().end(),
                     [&](const v1::FleetLinkId& link) { return way.contains(link.to()); });
}

const v1::FleetPath* PathOf(const v1::FleetFlow& flow, const v1::FleetPathsReply& reply) {
  const auto path = std::find_if(reply.paths().begin(), reply.paths().end(), [&](const v1::FleetPath& p) {
    return !p.reverse() && p.local() == flow.local() && p.remote() == flow.remote() && p.udp_port() == flow.udp_port();
  });
  return path == reply.paths().end() ? nullptr : &*path;
}

std::vector<const v1::FleetFinding*> FindingsOn(const v1::FleetFlow& flow, const Known& known) {
  std::vector<const v1::FleetFinding*> on;
  for (const v1::FleetFinding& finding : known.findings.findings()) {
    if (IsOn(finding, flow, known.topology)) on.push_back(&finding);
  }
  return on;
}

// The newest first: of the flow itself, or of its peer's paths.
std::vector<const v1::FleetEventOf*> EventsOf(const v1::FleetFlow& flow, const v1::FleetEventsReply& reply) {
  std::vector<const v1::FleetEventOf*> of;
  for (const v1::FleetEventOf& event : reply.events()) {
    const v1::Event& e = event.event().event();
    const bool own = !e.flow().empty() && e.flow() == IdOf(flow);
    const bool peers = e.flow().empty() && !e.peer().empty() && (e.peer() == flow.peer() || e.peer() == flow.remote());
    if ((own || peers) && of.size() < kMostEventsShown) of.push_back(&event);
  }
  return of;
}

void ShowPath(const v1::FleetPath& path, bool colour) {
  const Cell state = StateCell(path.state());
  std::cout << ": " << Paint(state.text, state.tone, colour);
  if (path.base_ns() > 0)
    std::cout << ", base " << NsText(static_cast<double>(path.base_ns())) << ", queueing p99 "
              << NsText(static_cast<double>(path.queue_p99_ns()));
  if (path.sent() > 0)
    std::cout << ", loss " << ShareText(static_cast<double>(path.lost()) / static_cast<double>(path.sent()));
}

void ShowFlow(const v1::FleetFlow& flow, const Known& known, bool colour) {
  const std::string id = IdOf(flow), peer = flow.peer().empty() ? flow.remote() : flow.peer();
  std::cout << Paint(absl::StrCat("flow     ", id.empty() ? "" : id + ", "), Tone::kTitle, colour)
            << Printable(absl::StrFormat("%s to %s, qp %s to %s%s%s", flow.host(), peer, QpnText(flow.qpn()),
                                         QpnText(flow.peer_qpn()), flow.process().empty() ? "" : ", ", flow.process()))
            << (flow.label().empty() ? "" : Printable(", job " + flow.label())) << "\nsends    "
            << RateText(8 * flow.bytes_per_s()) << ", " << flow.retransmits() << " packets sent again, " << flow.cnps()
            << " CNPs, up to " << UtcText(flow.time_ns()) << '\n';
  if (flow.delay_samples() > 0)
    std::cout << "delay    its packets wait " << NsText(static_cast<double>(flow.delay_p50_ns())) << " (p50), "
              << NsText(static_cast<double>(flow.delay_p99_ns())) << " (p99) above its path's base\n";
  std::cout << "path     "
            << (flow.udp_port() == 0 ? std::string("not known") : absl::StrCat("udp-port ", flow.udp_port()));
  if (const v1::FleetPath* path = PathOf(flow, known.paths)) ShowPath(*path, colour);
  std::cout << "\n         " << (flow.hops().empty() ? "hops not known" : Printable(absl::StrJoin(flow.hops(), " ")))
            << '\n';
  const auto findings = FindingsOn(flow, known);
  const bool all = known.findings.findings_size() < static_cast<int>(kMostFindings);
  if (findings.empty())
    std::cout << (all ? "wrong    no finding is on its way\n" : "wrong    of the newest 10,000 findings none\n");
  for (const v1::FleetFinding* f : findings)
    std::cout << "wrong    " << Paint(f->cause(), Tone::kBad, colour) << ": " << Printable(f->scope()) << ", since "
              << UtcText(f->start_ns()) << "; cwctl fleet findings " << f->id() << '\n';
  const char* head = "lately   ";
  for (const v1::FleetEventOf* event : EventsOf(flow, known.events)) {
    std::cout << head << UtcText(event->event().time_ns()) << "  " << Printable(event->event().event().text()) << '\n';
    head = "         ";
  }
}

nlohmann::ordered_json ToJson(const Known& known) {
  nlohmann::ordered_json flows = nlohmann::ordered_json::array();
  for (const v1::FleetFlow& flow : known.work.flows()) {
    nlohmann::ordered_json one = {{"id", IdOf(flow)},
                                  {"flow", api::ToJson(flow)},
                                  {"path", nullptr},
                                  {"findings", nlohmann::ordered_json::array()},
                                  {"events", nlohmann::ordered_json::array()}};
    if (const v1::FleetPath* path = PathOf(flow, known.paths)) one["path"] = api::ToJson(*path);
    for (const v1::FleetFinding* f : FindingsOn(flow, known)) one["findings"].push_back(api::ToJson(*f));
    for (const v1::FleetEventOf* e : EventsOf(flow, known.events)) one["events"].push_back(api::ToJson(*e));
    flows.push_back(std::move(one));
  }
  return {{"coverage", api::ToJson(known.work.coverage())}, {"flows", std::move(flows)}};
}

}  // namespace

absl::StatusOr<int> WhyOfHost(Session& session, const std::string& what) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<Known> known = Ask(**client, session, what);
  if (!known.ok()) return known.status();
  if (session.json) {
    std::cout << ToJson(*known).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return kOk;
  }
  int shown = 0;
  for (const v1::FleetFlow& flow : known->work.flows()) {
    if (shown == kMostFlows) break;
    if (shown++ > 0) std::cout << '\n';
    ShowFlow(flow, *known, session.Colour());
  }
  if (known->work.flows_size() > kMostFlows)
    std::cout << "\nand " << known->work.flows_size() - kMostFlows << " more: give a flow's id or a QPN\n";
  ShowCoverage(known->work.coverage(), session.Colour());
  return kOk;
}

}  // namespace cw::cli
