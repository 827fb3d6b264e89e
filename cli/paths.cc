// SPDX-License-Identifier: Apache-2.0
//
// cwctl paths, cwctl owd, cwctl links.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/columns.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct PathOptions {
  std::string remote;
  uint32_t window_s = 10;
  std::string columns;  // "" those that fit
  Session::Watch watch;
};

// Delays mean something only while the two clocks are compared.
struct ClockView {
  bool known;
  double error_ns;
};

ClockView ViewOf(const v1::Pair& pair) {
  return {pair.clock().state() != v1::PeerClock::STATE_UNKNOWN, pair.clock().error_est_ns()};
}

std::string Quantile(const v1::Delay& delay, double value_ns, const ClockView& clock) {
  if (delay.samples() == 0 || !clock.known) return kNoValue;
  return DelayText(value_ns, clock.error_ns);
}

const v1::PathWindow* WindowOf(const v1::Path& path, uint32_t seconds) {
  for (const v1::PathWindow& window : path.windows()) {
    if (window.seconds() == seconds) return &window;
  }
  return nullptr;
}

std::string ClockText(const v1::PeerClock& clock) {
  switch (clock.state()) {
    case v1::PeerClock::STATE_SYNCED:
    case v1::PeerClock::STATE_HOLDOVER:
      return absl::StrFormat("clock %s %s (bound %s), offset %d ns, drift %+.1f ppb, updated %s ago",
                             clock.state() == v1::PeerClock::STATE_SYNCED ? "within" : "HOLDOVER, within",
                             NsText(clock.error_est_ns()), NsText(clock.bound_ns()), clock.offset_ns(),
                             clock.slope_ppb(), DurationText(clock.age_s()));
    default:
      return "clock not compared yet: no one-way delays";
  }
}

// "" where an agent of before does not say.
std::string InClassText(const v1::Pair& pair) {
  return pair.dscp_from().empty() ? "" : absl::StrFormat(" in DSCP %d", pair.dscp());
}

void ShowPairHead(const v1::Pair& pair, bool colour) {
  const size_t room = TerminalWidth();
  const std::string title = absl::StrFormat("%s %s", pair.peer(), pair.remote_address());
  const std::string head =
      absl::StrFormat("%s  from %s %s, %s, a round every %s%s, last reply %s ago, path table %s, %s", title, pair.nic(),
                      pair.local_address(), pair.active() ? "active" : "idle", DurationText(pair.interval_s()),
                      InClassText(pair), AgoText(pair.last_reply_ago_s()), pair.table(), HashingText(pair.hashing()));
  const std::string lines = absl::StrCat(BrokenAtCommas(head, room, 4).substr(title.size()), "\n  ",
                                         BrokenAtCommas(ClockText(pair.clock()), room, 4));
  std::cout << Paint(title, Tone::kTitle, colour);
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) std::cout << Printable(line) << '\n';
  if (const std::string unseen = UnseenPathsText(pair); !unseen.empty())
    std::cout << "  " << BrokenAtCommas(unseen, room, 4) << '\n';
}

std::string Flags(const v1::Path& path) {
  std::vector<std::string> flags;
  if (path.native()) flags.push_back("native");
  if (path.damped()) flags.push_back("damped");
  if (path.drained()) flags.push_back("drained");
  if (!path.assignable()) flags.push_back("not assigned");
  if (path.lossy()) flags.push_back("loses packets");
  if (path.largest_arrives() > 0) flags.push_back(absl::StrCat("packets above ", path.largest_arrives(), " B lost"));
  if (path.clock_left_out_forward()) flags.push_back("not for the clock");
  return absl::StrJoin(flags, ", ");
}

// As PathTable has them. On a narrow terminal what is wrong with a path stays longest.
const std::vector<ColumnChoice>& PathColumns() {
  static const std::vector<ColumnChoice> columns = {
      {"path", 16},        {"port", 6},         {"state", 15},       {"flows", 14},
      {"forward-p50", 11}, {"forward-p99", 10}, {"queueing-p99", 9}, {"reverse-p50", 4},
      {"reverse-p99", 3},  {"jitter", 2},       {"loss", 12},        {"deaths", 7},
      {"changed", 8},      {"checked", 1},      {"hops", 5},         {"note", 13}};
  return columns;
}

Table PathTable(const v1::Pair& pair, uint32_t window_s, bool whole) {
  // Each P99 stands beside its P50 where all are shown, and says whose it is where they are not.
  Table table({">PATH", ">UDP-PORT", "STATE", ">FLOWS", ">FORWARD P50", whole ? ">P99" : ">FORWARD P99",
               ">QUEUEING P99", ">REVERSE P50", whole ? ">P99" : ">REVERSE P99", ">JITTER", ">LOSS", ">DEATHS",
               ">CHANGED", ">CHECKED", "HOPS", "NOTE"});
  const ClockView clock = ViewOf(pair);
  for (const v1::Path& path : pair.paths()) {
    const v1::PathWindow* found = WindowOf(path, window_s);
    const v1::PathWindow& window = found == nullptr ? v1::PathWindow::default_instance() : *found;
    const bool known = window.known() > 0 && !window.agent_late();
    const bool queueing = window.queueing_forward().samples() > 0;
    table.Add(
        {std::to_string(path.slot()),
         std::to_string(path.udp_port()),
         StateCell(path.state()),
         std::to_string(path.flows()),
         Quantile(window.forward(), window.forward().p50_ns(), clock),
         Quantile(window.forward(), window.forward().p99_ns(), clock),
         queueing ? NsText(std::max(0.0, window.queueing_forward().p99_ns())) : kNoValue,
         Quantile(window.reverse(), window.reverse().p50_ns(), clock),
         Quantile(window.reverse(), window.reverse().p99_ns(), clock),
         window.forward().samples() > 0 ? NsText(window.jitter_forward_ns()) : kNoValue,
         {known ? ShareText(window.loss()) : kNoValue, known && window.loss() > 0.01 ? Tone::kWarn : Tone::kPlain},
         std::to_string(path.deaths()),
         AgoText(path.last_change_ago_s()),
         AgoText(path.age_s()),
         path.hops().empty() ? kNoValue : absl::StrJoin(path.hops(), " "),
         Flags(path)});
  }
  return table;
}

constexpr size_t kPathIndent = 2;

// The same for all pairs, so that what stands below each other is the same thing.
absl::StatusOr<std::vector<size_t>> ColumnsOf(const v1::PathsReply& reply, const PathOptions& options, size_t room) {
  std::vector<size_t> widths(PathColumns().size());
  for (const v1::Pair& pair : reply.pairs()) {
    const std::vector<size_t> of_pair = PathTable(pair, options.window_s, room == 0).Widths();
    for (size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], of_pair[c]);
  }
  return ChooseColumns(PathColumns(), widths, options.columns, room > kPathIndent ? room - kPathIndent : 0);
}

void ShowPaths(const v1::PathsReply& reply, const PathOptions& options, const std::vector<size_t>& columns,
               bool colour) {
  if (reply.pairs().empty()) std::cout << "no pairs of NICs: no peer is configured\n";
  if (reply.pairs().empty()) return;
  const bool whole = columns.size() == PathColumns().size();
  bool first = true;
  for (const v1::Pair& pair : reply.pairs()) {
    if (!first) std::cout << '\n';
    first = false;
    ShowPairHead(pair, colour);
    const Table table = PathTable(pair, options.window_s, whole).Only(columns);
    if (table.empty()) std::cout << "  no path yet\n";
    if (!table.empty()) table.Print(std::cout, colour, kPathIndent);
  }
  std::cout << absl::StrFormat("\ndelays of the last %d s", options.window_s)
            << (whole ? "; REVERSE: over the peer's own path of that number, which may take other switches" : "")
            << (!whole && options.columns.empty() ? "; more columns: -o wide" : "") << '\n';
}

absl::StatusOr<int> Paths(Session& session, const PathOptions& options) {
  v1::PathsRequest request;
  request.set_remote(options.remote);
  absl::StatusOr<v1::PathsReply> reply = session.Agent().Paths(request);
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<std::vector<size_t>> columns =
      ColumnsOf(*reply, options, options.columns.empty() ? TerminalWidth() : 0);
  if (!columns.ok()) return columns.status();
  session.Show(*reply, [&] { ShowPaths(*reply, options, *columns, session.Colour()); });
  return kOk;
}

void AddDelayRow(Table& table, std::vector<Cell> head, const v1::Delay& delay, const std::string& base,
                 const std::string& queueing, const std::string& jitter, const ClockView& clock) {
  head.insert(head.end(), {CountText(delay.samples()), base, Quantile(delay, delay.min_ns(), clock),
                           Quantile(delay, delay.p50_ns(), clock), Quantile(delay, delay.p99_ns(), clock),
                           Quantile(delay, delay.max_ns(), clock), queueing, jitter});
  table.Add(std::move(head));
}

std::string Queueing(const v1::Delay& delay) {
  return delay.samples() == 0 ? kNoValue : NsText(std::max(0.0, delay.p99_ns()));
}

Table OwdPathTable(const v1::OwdReply& reply) {
  Table table({"PEER", "NIC", ">PATH", ">UDP-PORT", "DIRECTION", ">SAMPLES", ">BASE", ">MIN", ">P50", ">P99", ">MAX",
               ">QUEUEING P99", ">JITTER"});
  for (const v1::Pair& pair : reply.pairs()) {
    const ClockView clock = ViewOf(pair);
    for (const v1::Path& path : pair.paths()) {
      const v1::PathWindow* window = WindowOf(path, reply.window_s());
      if (window == nullptr) continue;
      auto add = [&](const std::vector<Cell>& way, const v1::Delay& delay, double base_ns, const v1::Delay& queueing,
                     double jitter_ns) {
        std::vector<Cell> row = {pair.peer(), pair.nic()};
        row.insert(row.end(), way.begin(), way.end());
        const bool some = delay.samples() > 0;
        AddDelayRow(table, std::move(row), delay, some && clock.known ? DelayText(base_ns, clock.error_ns) : kNoValue,
                    Queueing(queueing), some ? NsText(jitter_ns) : kNoValue, clock);
      };
      add({std::to_string(path.slot()), std::to_string(path.udp_port()), "forward"}, window->forward(),
          path.base_forward_ns(), window->queueing_forward(), window->jitter_forward_ns());
      // The peer numbers its paths itself, and its port for them is its own.
      add({absl::StrFormat("peer's %d", path.reverse_slot()), kNoValue, "reverse"}, window->reverse(),
          path.base_reverse_ns(), window->queueing_reverse(), window->jitter_reverse_ns());
    }
  }
  return table;
}

const std::vector<ColumnChoice>& OwdColumns() {
  static const std::vector<ColumnChoice> columns = {
      {"peer", 12}, {"nic", 4},  {"path", 13}, {"port", 3}, {"direction", 11},   {"samples", 5}, {"base", 8},
      {"min", 2},   {"p50", 10}, {"p99", 9},   {"max", 1},  {"queueing-p99", 7}, {"jitter", 6}};
  return columns;
}

const std::vector<ColumnChoice>& OwdFlowColumns() {
  static const std::vector<ColumnChoice> columns = {{"flow", 9},    {"peer", 8},     {"direction", 5}, {"path", 4},
                                                    {"samples", 3}, {"min", 1},      {"p50", 7},       {"p99", 6},
                                                    {"max", 0},     {"unmatched", 2}};
  return columns;
}

Table OwdFlowTable(const v1::OwdReply& reply) {
  Table table({"FLOW", "PEER", "DIRECTION", ">PATH", ">SAMPLES", ">MIN", ">P50", ">P99", ">MAX", ">UNMATCHED"});
  for (const v1::Flow& flow : reply.flows()) {
    if (flow.owd().samples() == 0) continue;
    const ClockView clock = {true, flow.owd_error_ns()};
    const v1::Delay& owd = flow.owd();
    table.Add({flow.id(), flow.peer().empty() ? flow.remote_address() : flow.peer(),
               flow.received() ? "received" : "sent", SlotText(flow.slot()), CountText(owd.samples()),
               Quantile(owd, owd.min_ns(), clock), Quantile(owd, owd.p50_ns(), clock),
               Quantile(owd, owd.p99_ns(), clock), Quantile(owd, owd.max_ns(), clock), CountText(flow.unmatched())});
  }
  return table;
}

absl::StatusOr<int> Owd(Session& session, const PathOptions& options) {
  v1::OwdRequest request;
  request.set_remote(options.remote);
  request.set_window_s(options.window_s);
  absl::StatusOr<v1::OwdReply> reply = session.Agent().Owd(request);
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<Table> paths = Chosen(OwdPathTable(*reply), OwdColumns(), options.columns, kPathIndent);
  if (!paths.ok()) return paths.status();
  const absl::StatusOr<Table> flows =
      Chosen(OwdFlowTable(*reply), OwdFlowColumns(), options.columns.empty() ? "" : "wide", kPathIndent);
  if (!flows.ok()) return flows.status();
  session.Show(*reply, [&] {
    std::cout << absl::StrFormat("one-way delays by probes, last %d s\n", reply->window_s());
    if (paths->empty()) std::cout << "  no path has answered yet\n";
    if (!paths->empty()) paths->Print(std::cout, session.Colour(), kPathIndent);
    if (flows->empty()) return;
    std::cout << "\none-way delays of production packets\n";
    flows->Print(std::cout, session.Colour(), kPathIndent);
  });
  return kOk;
}

std::string LinkNote(const v1::Link& link) {
  if (link.gone_ago_s() > 0) return absl::StrCat("no path takes it, the last one ", AgoText(link.gone_ago_s()), " ago");
  if (link.alike().empty()) return "";
  return absl::StrCat(link.suspect() ? "this one or " : "together with ", absl::StrJoin(link.alike(), ", "));
}

// Of links that no path tells apart an outage counts for each: then a range.
std::string FlapsText(const v1::Link& link) {
  if (link.flaps_1h() == link.flaps_1h_certain()) return std::to_string(link.flaps_1h());
  return absl::StrCat(link.flaps_1h_certain(), "-", link.flaps_1h());
}

Cell LinkState(const v1::Link& link) {
  if (link.suspect()) return {"suspect", Tone::kBad};
  if (link.gone_ago_s() > 0) return {"gone", Tone::kBad};
  return "up";
}

const std::vector<ColumnChoice>& LinkColumns() {
  static const std::vector<ColumnChoice> columns = {{"from", 10}, {"to", 11},     {"peer", 4},   {"paths", 2},
                                                    {"dead", 6},  {"flaps", 7},   {"loss", 8},   {"queue", 9},
                                                    {"error", 1}, {"checked", 0}, {"state", 12}, {"note", 5}};
  return columns;
}

Table LinkTable(const v1::LinksReply& reply) {
  Table table(
      {"FROM", "TO", "PEER", ">PATHS", ">DEAD", ">FLAPS/H", ">LOSS", ">QUEUE", ">±", ">CHECKED", "STATE", "NOTE"});
  for (const v1::Link& link : reply.links()) {
    const bool queues = link.queue_ns() > 0, used = link.paths() > 0;
    table.Add({link.from(),
               link.to(),
               link.peer().empty() ? kNoValue : link.peer(),
               std::to_string(link.paths()),
               std::to_string(link.paths_dead()),
               FlapsText(link),
               {used ? ShareText(link.loss()) : kNoValue, link.loss() > 0.01 ? Tone::kWarn : Tone::kPlain},
               queues ? NsText(link.queue_ns()) : kNoValue,
               queues ? NsText(link.queue_error_ns()) : kNoValue,
               used ? AgoText(link.checked_ago_s()) : kNoValue,
               LinkState(link),
               LinkNote(link)});
  }
  return table;
}

// A switch whose link went down sends its paths elsewhere at once; here that shows at the next look.
std::string LastLookText(const v1::LinksReply& reply) {
  double longest_s = 0;
  for (const v1::Link& link : reply.links()) longest_s = std::max(longest_s, link.checked_ago_s());
  return absl::StrCat("each seen in use within ", DurationText(longest_s));
}

void ShowLinks(const v1::LinksReply& reply, const Table& table, bool colour) {
  if (table.empty()) {
    std::cout << "no link is known: no peer has answered yet, or the switches do not answer (cwctl doctor)\n";
    return;
  }
  table.Print(std::cout, colour);
  const std::string foot = absl::StrFormat(
      "of %s of this host, last %d s, %s, QUEUE: mean wait that is the link's own, LOSS: at most this is the link's",
      Counted(reply.paths(), "path"), reply.window_s(), LastLookText(reply));
  std::cout << '\n' << BrokenAtCommas(foot, TerminalWidth(), 0) << '\n';
  if (const uint32_t dead = reply.paths_dead_unexplained(); dead > 0) {
    std::cout << Counted(dead, "dead path") << (dead == 1 ? " takes" : " take")
              << " no link that living ones do not take\n";
  }
}

absl::StatusOr<int> Links(Session& session, const PathOptions& options) {
  v1::LinksRequest request;
  request.set_window_s(options.window_s);
  const absl::StatusOr<v1::LinksReply> reply = session.Agent().Links(request);
  if (!reply.ok()) return reply.status();
  const absl::StatusOr<Table> table = Chosen(LinkTable(*reply), LinkColumns(), options.columns);
  if (!table.ok()) return table.status();
  session.Show(*reply, [&] { ShowLinks(*reply, *table, session.Colour()); });
  return kOk;
}

using PathVerb = absl::StatusOr<int> (*)(Session&, const PathOptions&);

void AddPathVerb(CLI::App& app, Session& session, const char* name, const char* text, PathVerb run,
                 bool of_a_peer = true, const std::vector<ColumnChoice>& columns = {}) {
  CLI::App* verb = app.add_subcommand(name, text);
  auto options = std::make_shared<PathOptions>();
  if (of_a_peer)
    verb->add_option("remote", options->remote, "A peer's name or address; all without it")->type_name("REMOTE");
  verb->add_option("--window", options->window_s, "Seconds that delays and loss are taken over")
      ->check(CLI::IsMember({1, 10, 60}))
      ->capture_default_str();
  if (!columns.empty()) verb->add_option("-o,--columns", options->columns, ColumnsHelp(columns))->type_name("COL,...");
  Session::AddWatch(*verb, options->watch);
  verb->callback([&session, options, run] {
    session.action = [&session, options, run]() -> absl::StatusOr<int> {
      if (absl::Status status = Session::CheckWatch(options->watch, options->remote); !status.ok()) return status;
      return session.Repeat(options->watch, [&] { return run(session, *options); });
    };
  });
}

}  // namespace

void AddPathVerbs(CLI::App& app, Session& session) {
  AddPathVerb(
      app, session, "paths",
      "Paths to each peer: state, delay, loss, hops. The reverse delay of path N is that of the peer's own path N",
      Paths, /*of_a_peer=*/true, PathColumns());
  AddPathVerb(app, session, "owd",
              "One-way delays in full, per path and direction (reverse: the peer's own paths) and per flow", Owd,
              /*of_a_peer=*/true, OwdColumns());
  AddPathVerb(
      app, session, "links",
      "Links of the fabric as all paths of this host show them: whose queue it is, and whose death explains dead paths",
      Links, /*of_a_peer=*/false, LinkColumns());
}

}  // namespace cw::cli
