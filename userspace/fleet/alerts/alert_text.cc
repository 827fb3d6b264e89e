// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/alerts/alert_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

using nlohmann::json;

constexpr size_t kMostLabelBytes = 1024, kMostNoteBytes = 8192;

std::string TimeText(absl::Time time) { return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()); }

std::string Runbook(const Finding& f, const AlertWords& words) {
  if (words.runbook_url.empty()) return "";
  return absl::StrCat(words.runbook_url, "#", absl::StrReplaceAll(CauseName(f.cause), {{" ", "-"}}));
}

// By names, where they are known.
std::string PlaceOf(const Finding& f) { return CutUtf8(f.place.empty() ? f.scope : f.place, kMostLabelBytes); }

json AlertOf(const Finding& f, const AlertWords& words, absl::Time until) {
  const CauseRule& rule = RuleOf(words.rules, f.cause);
  const std::string scope = CutUtf8(f.scope, kMostLabelBytes);
  json out = {{"labels",
               {{"alertname", "CwfabricFinding"},
                {"cause", std::string(CauseName(f.cause))},
                {"scope", scope},
                {"severity", std::string(SeverityName(rule.severity))}}},
              {"annotations",
               {{"summary", SummaryOf(rule, PlaceOf(f))},
                {"evidence", CutUtf8(absl::StrJoin(f.evidence, "; "), kMostNoteBytes)},
                {"done", CutUtf8(absl::StrJoin(f.did, "; "), kMostNoteBytes)},
                {"what_to_do", f.advice},
                {"finding", IdText(f.id)},
                {"hosts", CutUtf8(absl::StrJoin(f.hosts, ", "), kMostNoteBytes)}}},
              {"startsAt", TimeText(absl::FromUnixNanos(f.start_ns))},
              {"endsAt", TimeText(f.end_ns == 0 ? until : absl::FromUnixNanos(f.end_ns))}};
  if (std::string url = Runbook(f, words); !url.empty()) out["annotations"]["runbook_url"] = std::move(url);
  return out;
}

// Names come from hosts: bytes that are no UTF-8 must not keep an alert back.
std::string Print(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

std::string AlertmanagerBody(const std::vector<Finding>& findings, const AlertWords& words, absl::Time until) {
  json out = json::array();
  for (const Finding& f : findings) out.push_back(AlertOf(f, words, until));
  return Print(out);
}

std::string WebhookBody(const Finding& f, const AlertWords& words) {
  const CauseRule& rule = RuleOf(words.rules, f.cause);
  json links = json::array();
  for (const LinkId& id : f.links) links.push_back({{"from", id.first.ToString()}, {"to", id.second.ToString()}});
  json finding = {{"id", IdText(f.id)},       {"cause", std::string(CauseName(f.cause))},
                  {"scope", f.scope},         {"place", PlaceOf(f)},
                  {"one_of", f.one_of},       {"start_ns", f.start_ns},
                  {"end_ns", f.end_ns},       {"evidence", f.evidence},
                  {"hosts", f.hosts},         {"jobs", f.jobs},
                  {"advice", f.advice},       {"done", f.did},
                  {"links", std::move(links)}};
  json out = {{"status", f.end_ns == 0 ? "open" : "over"},
              {"severity", std::string(SeverityName(rule.severity))},
              {"summary", SummaryOf(rule, PlaceOf(f))},
              {"finding", std::move(finding)}};
  if (std::string url = Runbook(f, words); !url.empty()) out["runbook_url"] = std::move(url);
  return Print(out);
}

}  // namespace cw::fleet
