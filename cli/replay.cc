// SPDX-License-Identifier: Apache-2.0
//
// cwctl replay: decides again what an agent recorded. Needs no agent.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format.h"
#include "cli/session.h"
#include "userspace/replay/replay.h"

namespace cw::cli {
namespace {

using nlohmann::json;

struct ReplayOptions {
  std::string file;
  std::vector<std::string> rules;
  int64_t window = -1;  // this one alone, with what was seen
};

absl::StatusOr<replay::RuleChanges> ParseRules(const std::vector<std::string>& texts) {
  replay::RuleChanges rules;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    double value = 0;
    if (equals == std::string::npos || !absl::SimpleAtod(text.substr(equals + 1), &value))
      return absl::InvalidArgumentError(absl::StrCat("--rule ", text, ": NAME=VALUE is wanted, such as min_gain=1.4"));
    rules.emplace_back(text.substr(0, equals), value);
  }
  return rules;
}

std::string MoveText(const control::Move& move) {
  return absl::StrFormat("%s path %d to %d, gain %.2f%s", move.flow.Id().ToString(), move.from, move.to, move.gain,
                         move.force ? ", forced" : "");
}

json MoveJson(const control::Move& move) {
  json evidence = json::object();
  for (const auto& [name, value] : move.evidence) evidence[name] = value;
  return {{"flow", move.flow.Id().ToString()},
          {"remote_address", move.pair.remote.ToString()},
          {"from", move.from},
          {"to", move.to},
          {"force", move.force},
          {"gain", move.gain},
          {"second", move.second == kSlotNone ? json(nullptr) : json(move.second)},
          {"why", move.why},
          {"evidence", evidence}};
}

json MovesJson(const control::Decision& decision) {
  json list = json::array();
  for (const control::Move& move : decision.moves) list.push_back(MoveJson(move));
  return list;
}

// Moves of the window before, whose two candidates were looked at again just before they were made.
json SettledJson(const control::Decision& decision) {
  json list = json::array();
  for (const control::Settled& settled : decision.settled) {
    list.push_back({{"flow", settled.flow.Id().ToString()},
                    {"first", settled.first},
                    {"to", settled.to == kSlotNone ? json(nullptr) : json(settled.to)}});
  }
  return list;
}

// What one window decided, then and now, side by side.
void ShowWindow(const replay::ReplayedWindow& window, double second, bool colour) {
  const auto& before = window.recorded.decided;
  const auto& now = window.decided;
  const std::string head = absl::StrFormat("%8d  %9.3f s  ", window.number, second);
  for (size_t row = 0; row < std::max(before.moves.size(), now.moves.size()); ++row) {
    const std::string left = row < before.moves.size() ? MoveText(before.moves[row]) : "–";
    const std::string right = row < now.moves.size() ? MoveText(now.moves[row]) : "–";
    std::cout << head
              << (window.same ? absl::StrCat(left, "  same")
                              : Paint(absl::StrFormat("recorded: %s   now: %s", left, right), Tone::kWarn, colour))
              << '\n';
  }
  if (before.moves.empty() && now.moves.empty() && window.same) {
    std::cout << head << "no moves, then and now\n";
  } else if (before.moves.empty() && now.moves.empty()) {
    std::cout << head << "findings, or the candidates that moves were made to, differ: " << before.findings.size()
              << " findings recorded, " << now.findings.size() << " now\n";
  }
}

json SeenJson(const control::Observation& seen) {
  json pairs = json::array();
  for (const control::PairObservation& pair : seen.pairs) {
    json out = {{"local_address", pair.pair.local.ToString()},
                {"remote_address", pair.pair.remote.ToString()},
                {"table_valid", pair.table_valid},
                {"paths", json::array()},
                {"flows", json::array()}};
    for (const control::PathObservation& path : pair.paths) {
      out["paths"].push_back({{"path", path.slot},
                              {"usable", path.usable},
                              {"probes", path.queue_samples},
                              {"queue_ns", path.queue_ns},
                              {"base_ns", path.base_ns}});
    }
    for (const control::FlowObservation& flow : pair.flows) {
      out["flows"].push_back({{"flow", flow.key.Id().ToString()},
                              {"remote_qpn", flow.key.dqpn},
                              {"path", flow.slot == kSlotNone ? -1 : int{flow.slot}},
                              {"bytes", flow.bytes},
                              {"cnps", flow.cnps},
                              {"locked", flow.locked},
                              {"at_rest", flow.at_rest}});
    }
    pairs.push_back(std::move(out));
  }
  return {{"window_ns", seen.window_ns}, {"pairs", std::move(pairs)}};
}

void ShowSeen(const control::Observation& seen) {
  for (const control::PairObservation& pair : seen.pairs) {
    std::cout << pair.pair.local.ToString() << " > " << pair.pair.remote.ToString()
              << (pair.table_valid ? "" : ", paths not known") << '\n';
    for (const control::PathObservation& path : pair.paths) {
      std::cout << absl::StrFormat("  path %2d  %-8s  %s queueing, %d probes; flows:", path.slot,
                                   path.usable ? "usable" : "not used", NsText(path.queue_ns), path.queue_samples);
      for (const control::FlowObservation& flow : pair.flows) {
        if (flow.slot != path.slot) continue;
        std::cout << absl::StrFormat(" %s (%d bytes, %d CNPs)", flow.key.Id().ToString(), flow.bytes, flow.cnps);
      }
      std::cout << '\n';
    }
  }
}

struct Shown {
  json windows = json::array();
  int64_t first_ns = 0;
};

json Summary(const ReplayOptions& options, const replay::Head& head, const replay::ReplayResult& result, Shown& shown) {
  json out = {{"file", options.file},
              {"host", head.host},
              {"agent_version", head.version},
              {"started_unix_ns", head.started_unix_ns},
              {"rules", options.rules},
              {"windows", result.windows},
              {"windows_different", result.different},
              {"moves_recorded", result.moves_recorded},
              {"moves_decided", result.moves_decided},
              {"first_different", nullptr},
              {"end", result.end.ok() ? "" : std::string(result.end.message())},
              {"decisions", std::move(shown.windows)}};
  if (result.different > 0) out["first_different"] = result.first_different;
  return out;
}

void ShowSummary(const replay::ReplayResult& result, bool other_rules) {
  std::cout << absl::StrFormat("%d windows: %d moves recorded, %d decided %s; ", result.windows, result.moves_recorded,
                               result.moves_decided, other_rules ? "under the other rules" : "now");
  if (result.different == 0) {
    std::cout << "every decision is the same\n";
  } else {
    std::cout << absl::StrFormat("%d windows differ, the first is %d\n", result.different, result.first_different);
  }
  if (other_rules && result.different > 0) {
    std::cout
        << "(on what was seen under the recorded decisions: from the first difference on the fabric might have gone "
           "another way)\n";
  }
}

absl::StatusOr<int> Replay(Session& session, const ReplayOptions& options) {
  absl::StatusOr<replay::RuleChanges> rules = ParseRules(options.rules);
  if (!rules.ok()) return rules.status();
  auto reader = replay::Reader::Open(options.file);
  if (!reader.ok()) return reader.status();
  Shown shown;
  const auto each = [&](const replay::ReplayedWindow& window) {
    if (window.number == 0) shown.first_ns = window.recorded.seen.now_ns;
    const double second = static_cast<double>(window.recorded.seen.now_ns - shown.first_ns) / 1e9;
    const bool asked = options.window >= 0 && window.number == static_cast<uint64_t>(options.window);
    if (options.window >= 0 ? !asked : window.same && window.recorded.decided.moves.empty()) return;
    if (asked && !session.json) ShowSeen(window.recorded.seen);
    if (!session.json) return ShowWindow(window, second, session.Colour());
    shown.windows.push_back({{"window", window.number},
                             {"offset", window.offset},
                             {"second", second},
                             {"same", window.same},
                             {"recorded", MovesJson(window.recorded.decided)},
                             {"decided", MovesJson(window.decided)},
                             {"settled", SettledJson(window.decided)}});
    if (asked) shown.windows.back()["seen"] = SeenJson(window.recorded.seen);
  };
  const absl::StatusOr<replay::ReplayResult> result = replay::Replay(**reader, *rules, each);
  if (!result.ok()) return result.status();
  if (options.window >= 0 && static_cast<uint64_t>(options.window) >= result->windows)
    return absl::NotFoundError(
        absl::StrCat("there is no window ", options.window, " in ", options.file, ", which has ", result->windows));
  if (session.json) {
    std::cout << Summary(options, (*reader)->head(), *result, shown).dump(2, ' ', false, json::error_handler_t::replace)
              << std::endl;
  } else {
    ShowSummary(*result, !rules->empty());
    if (!result->end.ok()) session.ShowError(result->end);
  }
  const bool wanted = !rules->empty() || result->different == 0;
  return result->end.ok() && wanted ? kOk : kFailed;
}

}  // namespace

void AddReplayVerb(CLI::App& app, Session& session) {
  CLI::App* verb =
      app.add_subcommand("replay", "Decide again what an agent recorded (log.observations_file); needs no agent");
  auto options = std::make_shared<ReplayOptions>();
  verb->add_option("file", options->file, "The recording")->type_name("FILE")->required();
  verb->add_option("--rule", options->rules, "Under another rule, NAME=VALUE; differences are shown side by side")
      ->take_all();
  verb->add_option("--window", options->window, "This window alone, with what was seen in it; see cwctl report --items")
      ->type_name("NUMBER")
      ->check(CLI::NonNegativeNumber);
  verb->callback([&session, options] { session.action = [&session, options] { return Replay(session, *options); }; });
}

}  // namespace cw::cli
