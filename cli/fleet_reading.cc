// SPDX-License-Identifier: Apache-2.0
//
// --host HOST [--at TIME] of the reading verbs: answered by the fleet service, also of hosts that are down.
// docs/fleet.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"
#include "userspace/model/addr.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

// The verbs, and those of their options that the service has an answer to.
struct ReadingVerb {
  const char* name;
  std::set<std::string> options;
};

const std::vector<ReadingVerb>& ReadingVerbs() {
  static const auto& verbs = *new std::vector<ReadingVerb>{{"status", {}},      {"paths", {"remote"}},
                                                           {"links", {}},       {"events", {"--type", "--last"}},
                                                           {"owd", {"remote"}}, {"clock tracking", {}},
                                                           {"why", {"what"}},   {"qps", {}},
                                                           {"jobs", {"--job"}}, {"collectives", {"--job", "--slow"}}};
  return verbs;
}

// Of 4 or 16 bytes in network order.
std::string AddressText(const std::string& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (bytes.size() == 4)
    return Addr::FromV4(uint32_t{data[0]} << 24 | uint32_t{data[1]} << 16 | uint32_t{data[2]} << 8 | data[3])
        .ToString();
  return bytes.size() == 16 ? Addr::FromBytes(data).ToString() : kNoValue;
}

// What is 0 is now.
absl::StatusOr<v1::FleetPathsReply> AskPaths(Session& session) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  v1::FleetPathsRequest request;
  request.set_host(session.fleet_host);
  request.set_at_ns(*at);
  return (*client)->Paths(request);
}

absl::StatusOr<v1::FleetPathsReply> AskPathsTo(Session& session, const std::string& remote) {
  absl::StatusOr<v1::FleetPathsReply> reply = AskPaths(session);
  if (!reply.ok() || remote.empty()) return reply;
  const absl::StatusOr<Addr> wanted = Addr::Parse(remote);
  if (!wanted.ok()) return absl::InvalidArgumentError("with --host, REMOTE is an address of the peer's NIC");
  auto* paths = reply->mutable_paths();
  paths->erase(std::remove_if(paths->begin(), paths->end(),
                              [&](const v1::FleetPath& path) { return path.remote() != wanted->ToString(); }),
               paths->end());
  return reply;
}

// Above its base a path's delay is that of its queues.
absl::StatusOr<int> DelaysOfHost(Session& session, const std::string& remote) {
  const absl::StatusOr<v1::FleetPathsReply> reply = AskPathsTo(session, remote);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    Table table({"LOCAL", "REMOTE", ">UDP-PORT", "DIRECTION", ">PROBES", ">BASE", ">P50", ">P99", ">MAX", ">TOLD"});
    for (const v1::FleetPath& path : reply->paths()) {
      const auto delay = [&](uint64_t queue_ns) {
        return path.base_ns() == 0 ? kNoValue : NsText(static_cast<double>(path.base_ns() + queue_ns));
      };
      table.Add({path.local(), path.remote(), std::to_string(path.udp_port()), path.reverse() ? "reverse" : "forward",
                 CountText(path.sent()), delay(0), delay(path.queue_p50_ns()), delay(path.queue_p99_ns()),
                 delay(path.queue_max_ns()), UtcText(path.time_ns())});
    }
    table.empty() ? void(std::cout << "no path is known\n") : table.Print(std::cout, session.Colour());
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> PathsOfHost(Session& session, const std::string& remote) {
  const absl::StatusOr<v1::FleetPathsReply> reply = AskPathsTo(session, remote);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    Table table({"LOCAL", "REMOTE", ">UDP-PORT", "DIRECTION", "STATE", ">BASE", ">QUEUE P50", ">QUEUE P99", ">LOSS",
                 ">TOLD", "HOPS"});
    for (const v1::FleetPath& path : reply->paths()) {
      const double loss = path.sent() == 0 ? 0 : static_cast<double>(path.lost()) / static_cast<double>(path.sent());
      table.Add({path.local(),
                 path.remote(),
                 std::to_string(path.udp_port()),
                 path.reverse() ? "reverse" : "forward",
                 StateCell(path.state()),
                 path.base_ns() == 0 ? kNoValue : NsText(static_cast<double>(path.base_ns())),
                 NsText(static_cast<double>(path.queue_p50_ns())),
                 NsText(static_cast<double>(path.queue_p99_ns())),
                 {path.sent() == 0 ? kNoValue : ShareText(loss), loss > 0.01 ? Tone::kWarn : Tone::kPlain},
                 UtcText(path.time_ns()),
                 path.hops().empty() ? kNoValue : absl::StrJoin(path.hops(), " ")});
    }
    table.empty() ? void(std::cout << "no path is known\n") : table.Print(std::cout, session.Colour());
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> LinksOfHost(Session& session) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  v1::FleetTopologyRequest request;
  request.set_host(session.fleet_host);
  request.set_at_ns(*at);
  const absl::StatusOr<v1::FleetTopologyReply> reply = (*client)->Topology(request);
  if (!reply.ok()) return reply.status();
  if (reply->host() != session.fleet_host)
    return absl::FailedPreconditionError(
        "this fleet service is of a release that knows links of all hosts together only: upgrade cwfleetd, or see "
        "cwctl "
        "fleet links");
  session.Show(*reply, [&] { ShowFleetLinkTable(*reply, session.Colour()); });
  return kOk;
}

// --at: those up to then.
absl::StatusOr<int> EventsOfHost(Session& session, const std::vector<std::string>& types, uint32_t last) {
  if (types.size() > 1) return absl::InvalidArgumentError("with --host, give one --type");
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  v1::FleetEventsRequest request;
  request.set_host(session.fleet_host);
  request.set_type(types.empty() ? "" : types[0]);
  request.set_to_ns(*at == 0 ? 0 : *at + 1);
  request.set_newest_first(true);
  request.set_limit(last);
  absl::StatusOr<v1::FleetEventsReply> reply = (*client)->Events(request);
  if (!reply.ok()) return reply.status();
  std::reverse(reply->mutable_events()->begin(), reply->mutable_events()->end());
  session.Show(*reply, [&] { ShowFleetEventTable(*reply, session.Colour()); });
  return kOk;
}

// Of a service that is too old to be asked for one.
absl::Status KeepHost(const std::string& name, v1::FleetHostsReply& reply) {
  auto* hosts = reply.mutable_hosts();
  hosts->erase(std::remove_if(hosts->begin(), hosts->end(), [&](const v1::FleetHost& h) { return h.host() != name; }),
               hosts->end());
  if (hosts->empty())
    return absl::NotFoundError(absl::StrCat("the fleet service knows no host ", name, "; see cwctl fleet hosts"));
  auto* missing = reply.mutable_coverage()->mutable_missing();
  missing->erase(std::remove_if(missing->begin(), missing->end(),
                                [&](const std::string& m) { return m.rfind(name + ": ", 0) != 0; }),
                 missing->end());
  reply.mutable_coverage()->set_hosts(1);
  return absl::OkStatus();
}

void ShowNics(const v1::FleetHost& host) {
  const char* title = "NICs      ";
  for (const v1::NicFacts& nic : host.nics()) {
    std::cout << title << Printable(nic.name()) << (nic.link_up() ? "" : ", down");
    for (const std::string& bytes : nic.addresses()) std::cout << ' ' << AddressText(bytes);
    if (!nic.rail().empty()) std::cout << ", rail " << Printable(nic.rail());
    if (nic.rate_bps() > 0) std::cout << ", " << nic.rate_bps() / 1e9 << " Gbit/s";
    std::cout << '\n';
    title = "          ";
  }
}

void ShowClock(const v1::FleetHost& host) {
  if (!host.has_clock()) return;
  const v1::ClockState& clock = host.clock();
  std::cout << "clock     " << (clock.synced() ? "synchronised" : "not synchronised");
  if (clock.has_bound_ns()) std::cout << ", bound " << NsText(clock.bound_ns());
  if (clock.has_error_est_ns()) std::cout << ", likely " << NsText(clock.error_est_ns());
  std::cout << (clock.anchored() ? ", TAI" : "") << '\n';
}

// `past`: of then; what is counted since the service began is not known of it.
void ShowHost(const v1::FleetHost& host, bool past, bool colour) {
  const auto ago = [](int64_t ns) {
    return ns == 0 ? "not since the service began"
                   : AgoText(static_cast<double>(absl::GetCurrentTimeNanos() - ns) / 1e9) + " ago";
  };
  std::cout << Paint(Printable(host.host()), Tone::kTitle, colour) << "  "
            << (host.connected() ? Paint(past ? "told" : "connected", Tone::kGood, colour)
                                 : Paint("missing", Tone::kBad, colour))
            << (past ? absl::StrCat("\ntold      ", host.newest_ns() == 0 ? kNoValue : UtcText(host.newest_ns()))
                     : absl::StrCat("\nversion   ", host.version().empty() ? kNoValue : Printable(host.version()),
                                    "\nseen      ", ago(host.last_seen_ns())))
            << "\npaths     " << host.up() << " up, " << host.suspect() << " suspect, " << host.dead() << " dead, "
            << host.paused() << " paused, " << host.new_() << " new; each direction is one\n";
  ShowNics(host);
  ShowClock(host);
  if (past) return;
  if (!host.twins().empty()) std::cout << "twins     " << Paint(Printable(host.twins()), Tone::kBad, colour) << '\n';
  std::cout << "refused   " << host.refused() << " batches, " << host.records_left_out() << " records\n";
  if (!host.last_refusal().empty()) std::cout << "          last: " << Printable(host.last_refusal()) << '\n';
  std::cout << "dropped   " << host.dropped_detail() << " batches of detail, " << host.dropped_events()
            << " of events, by its spool\nmetrics   "
            << (host.metrics_address().empty() ? kNoValue : Printable(host.metrics_address())) << '\n';
  if (!host.metrics_fault().empty()) std::cout << "          " << Printable(host.metrics_fault()) << '\n';
}

absl::StatusOr<v1::FleetHostsReply> AskHost(Session& session) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  v1::FleetHostsRequest request;
  request.set_host(session.fleet_host);
  request.set_at_ns(*at);
  absl::StatusOr<v1::FleetHostsReply> reply = (*client)->Hosts(request);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = CheckHostsAreOf(*at, *reply); !status.ok()) return status;
  if (absl::Status status = KeepHost(session.fleet_host, *reply); !status.ok()) return status;
  return reply;
}

absl::StatusOr<int> StatusOfHost(Session& session) {
  const absl::StatusOr<v1::FleetHostsReply> reply = AskHost(session);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    for (const v1::FleetHost& host : reply->hosts()) ShowHost(host, reply->at_ns() != 0, session.Colour());
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

// What it told last of its fleet time, and what happened to it lately.
absl::StatusOr<int> ClockOfHost(Session& session) {
  const absl::StatusOr<v1::FleetHostsReply> reply = AskHost(session);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    for (const v1::FleetHost& host : reply->hosts()) {
      std::cout << Paint(Printable(host.host()), Tone::kTitle, session.Colour()) << ", told "
                << (host.newest_ns() == 0 ? kNoValue : UtcText(host.newest_ns())) << '\n';
      host.has_clock() ? ShowClock(host) : void(std::cout << "it told nothing of its clock\n");
    }
    std::cout << "cwctl events --type clock --host " << session.fleet_host << " shows what happened to it\n";
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

// "clock tracking" is a verb in two words.
const CLI::App* TypedVerb(const CLI::App& app) {
  const auto& verbs = app.get_subcommands();
  if (verbs.empty()) return nullptr;
  const auto& inner = verbs.front()->get_subcommands();
  return verbs.front()->get_name() == "clock" && !inner.empty() ? inner.front() : verbs.front();
}

std::string NameOf(const CLI::App& verb) {
  const CLI::App* group = verb.get_parent();
  return group != nullptr && group->get_name() == "clock" ? "clock " + verb.get_name() : verb.get_name();
}

// One verb that this host's agent would answer, though a fleet service was named.
absl::Status CheckFleetIsMeant(const Session& session, const CLI::App* verb) {
  static const auto& others =
      *new std::set<std::string>{"fleet", "incident", "certs", "completion", "manual", "replay", "off"};
  if (!session.fleet_typed || verb == nullptr || others.contains(verb->get_name())) return absl::OkStatus();
  const std::string name = NameOf(*verb);
  const auto& all = ReadingVerbs();
  const bool reads = std::any_of(all.begin(), all.end(), [&](const ReadingVerb& r) { return name == r.name; });
  if (!reads)
    return absl::InvalidArgumentError(absl::StrCat("the fleet service has no answer to ", name,
                                                   ": leave --fleet out, or ask a host's agent: cwctl --server ",
                                                   "HOST:PORT ", name));
  const bool of_all = name == "links" || name == "events" || name == "jobs";
  return absl::InvalidArgumentError(
      absl::StrCat("of which host? Give --host HOST; of all hosts: cwctl fleet ", of_all ? name : "hosts"));
}

}  // namespace

void AddFleetReading(CLI::App& app, Session& session) {
  for (const ReadingVerb& reading : ReadingVerbs()) {
    CLI::App* verb = &app;
    for (const absl::string_view word : absl::StrSplit(reading.name, ' '))
      verb = verb->get_subcommand(std::string(word));
    CLI::Option* host = verb->add_option("--host", session.fleet_host,
                                         "Of this host, as the fleet service knows it (--fleet HOST:PORT)");
    verb->add_option("--at", session.fleet_at, "With --host: as it was then: 2026-05-01T12:00:00Z, or --at=-10m")
        ->needs(host);
  }
}

absl::StatusOr<std::function<absl::StatusOr<int>()>> FleetReadingOf(const CLI::App& app, Session& session) {
  std::function<absl::StatusOr<int>()> none;
  const CLI::App* verb = TypedVerb(app);
  if (session.fleet_host.empty()) {
    if (absl::Status status = CheckFleetIsMeant(session, verb); !status.ok()) return status;
    return none;
  }
  if (verb == nullptr) return none;
  const auto& all = ReadingVerbs();
  const auto reading =
      std::find_if(all.begin(), all.end(), [&](const ReadingVerb& r) { return NameOf(*verb) == r.name; });
  if (reading == all.end()) return none;
  for (const CLI::Option* option : verb->get_options()) {
    const std::string name = option->get_single_name(), full = option->get_positional() ? name : "--" + name;
    if (option->count() == 0 || full == "--host" || full == "--at" || full == "--help") continue;
    if (!reading->options.contains(full))
      return absl::InvalidArgumentError(absl::StrCat(full,
                                                     " is answered by the host's agent alone: leave it out, or ask "
                                                     "that: cwctl --server HOST:PORT ",
                                                     reading->name));
  }
  const std::string name = reading->name;
  if (name == "status") return [&session] { return StatusOfHost(session); };
  if (name == "links") return [&session] { return LinksOfHost(session); };
  if (name == "clock tracking") return [&session] { return ClockOfHost(session); };
  if (name == "why") {
    const std::string what = verb->get_option("what")->as<std::string>();
    return [&session, what] { return WhyOfHost(session, what); };
  }
  if (name == "paths" || name == "owd") {
    const CLI::Option* given = verb->get_option("remote");
    const std::string remote = given->count() == 0 ? "" : given->as<std::string>();
    const auto show = name == "paths" ? PathsOfHost : DelaysOfHost;
    return [&session, remote, show] { return show(session, remote); };
  }
  if (name == "events") {
    const CLI::Option* type = verb->get_option("--type");
    const auto types = type->count() == 0 ? std::vector<std::string>() : type->as<std::vector<std::string>>();
    const CLI::Option* last = verb->get_option("--last");
    const uint32_t count = last->count() == 0 ? 50 : last->as<uint32_t>();
    return [&session, types, count] { return EventsOfHost(session, types, count); };
  }
  const CLI::Option* given = name == "qps" ? nullptr : verb->get_option("--job");
  const std::string job = given == nullptr || given->count() == 0 ? "" : given->as<std::string>();
  return [&session, name, job] { return ShowWorkOfHost(session, name, job); };
}

}  // namespace cw::cli
