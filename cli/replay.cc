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

struct Options {
  std::string file;
  std::vector<std::string> rules;
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
          {"why", move.why},
          {"evidence", evidence}};
}

json MovesJson(const control::Decision& decision) {
  json list = json::array();
  for (const control::Move& move : decision.moves) list.push_back(MoveJson(move));
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
  if (before.moves.empty() && now.moves.empty()) {
    std::cout << head << "findings differ: " << before.findings.size() << " recorded, " << now.findings.size()
              << " now\n";
  }
}

struct Shown {
  json windows = json::array();
  int64_t first_ns = 0;
};

json Summary(const Options& options, const replay::Head& head, const replay::ReplayResult& result, Shown& shown) {
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

absl::StatusOr<int> Replay(Session& session, const Options& options) {
  absl::StatusOr<replay::RuleChanges> rules = ParseRules(options.rules);
  if (!rules.ok()) return rules.status();
  auto reader = replay::Reader::Open(options.file);
  if (!reader.ok()) return reader.status();
  Shown shown;
  const auto each = [&](const replay::ReplayedWindow& window) {
    if (window.number == 0) shown.first_ns = window.recorded.seen.now_ns;
    const double second = static_cast<double>(window.recorded.seen.now_ns - shown.first_ns) / 1e9;
    if (window.same && window.recorded.decided.moves.empty()) return;
    if (!session.json) return ShowWindow(window, second, session.Colour());
    shown.windows.push_back({{"window", window.number},
                             {"offset", window.offset},
                             {"second", second},
                             {"same", window.same},
                             {"recorded", MovesJson(window.recorded.decided)},
                             {"decided", MovesJson(window.decided)}});
  };
  const absl::StatusOr<replay::ReplayResult> result = replay::Replay(**reader, *rules, each);
  if (!result.ok()) return result.status();
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
  auto options = std::make_shared<Options>();
  verb->add_option("file", options->file, "The recording")->type_name("FILE")->required();
  verb->add_option("--rule", options->rules, "Under another rule, NAME=VALUE; differences are shown side by side")
      ->take_all();
  verb->callback([&session, options] { session.action = [&session, options] { return Replay(session, *options); }; });
}

}  // namespace cw::cli
