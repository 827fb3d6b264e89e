// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/fleet_truth_case.h"

#include <algorithm>
#include <regex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::lab {
namespace {

// Protobuf's JSON has 64-bit numbers as text.
int64_t Number(const nlohmann::json& finding, const char* key) {
  const auto it = finding.find(key);
  if (it == finding.end()) return 0;
  int64_t number = 0;
  if (it->is_string()) return absl::SimpleAtoi(it->get<std::string>(), &number) ? number : 0;
  return it->get<int64_t>();
}

std::string Seconds(double s) { return s < 0 ? "-" : absl::StrFormat("%.1f", s); }

}  // namespace

std::string Text(const Said& said) { return absl::StrCat(said.cause, ": ", said.scope); }

std::vector<Said> SaidIn(const nlohmann::json& findings) {
  std::vector<Said> out;
  for (const nlohmann::json& f : findings) {
    Said said{.id = f.value("id", ""), .cause = f.value("cause", ""), .scope = f.value("scope", "")};
    said.end_ns = Number(f, "end_ns");
    said.open = said.end_ns == 0;
    out.push_back(std::move(said));
  }
  return out;
}

bool IsRight(const TruthCase& c, const Said& said) {
  return std::any_of(c.right.begin(), c.right.end(), [&](const Answer& answer) {
    return std::regex_match(said.cause, std::regex(answer.cause)) &&
           std::regex_search(said.scope, std::regex(answer.place));
  });
}

nlohmann::json ToJson(const TruthRow& row) {
  return {{"case", row.name},     {"group", row.group},   {"found", row.found}, {"found_s", row.found_s},
          {"others", row.others}, {"over_s", row.over_s}, {"wrong", row.wrong}};
}

std::string TruthTable(const std::vector<TruthRow>& rows) {
  std::string text = absl::StrFormat("%-28s %-6s %8s %8s  %s\n", "case", "", "found s", "over s", "what was found");
  for (const TruthRow& row : rows) {
    absl::StrAppendFormat(&text, "%-28s %-6s %8s %8s  %s%s%s\n", row.name, row.wrong.empty() ? "true" : "WRONG",
                          Seconds(row.found_s), Seconds(row.over_s), row.found.empty() ? "nothing right" : row.found,
                          row.others.empty() ? "" : " | beside it: ", row.others);
  }
  return text;
}

Judge::Judge(std::vector<const TruthCase*> cases, const std::vector<Said>& before, absl::Time began)
    : cases_(std::move(cases)), began_(began) {
  for (const Said& said : before) before_[said.id] = said.end_ns;
}

int Judge::OwnerOf(const Said& said) const {
  for (size_t i = 0; i < cases_.size(); ++i) {
    if (IsRight(*cases_[i], said)) return static_cast<int>(i);
  }
  return -1;
}

// A finding may be the same as one before that is open again, and may change its cause while it is open.
void Judge::Look(const std::vector<Said>& all, absl::Time now) {
  for (const Said& said : all) {
    if (const auto old = before_.find(said.id);
        old != before_.end() && (old->second == 0 || old->second == said.end_ns))
      continue;
    auto [it, fresh] = heard_.try_emplace(said.id);
    Heard& heard = it->second;
    if (fresh) {
      heard = {
          .said = said, .first = Text(said), .right_at = absl::InfiniteFuture(), .over_at = absl::InfiniteFuture()};
      heard.said.seen = now;
      heard.again = before_.contains(said.id);
    }
    const absl::Time seen = heard.said.seen;
    heard.said = said;
    heard.said.seen = seen;
    heard.owner = OwnerOf(said);
    if (heard.owner >= 0) heard.right_at = std::min(heard.right_at, now);
    if (said.open) heard.over_at = absl::InfiniteFuture();
    if (!said.open) heard.over_at = std::min(heard.over_at, now);
    // What was something else before, as each outage of a cable that flaps, may have been over then.
    heard.ended_early |= heard.right_at < absl::InfiniteFuture() && !said.open && mended_ == absl::InfiniteFuture();
  }
}

bool Judge::AllFound() const {
  for (size_t i = 0; i < cases_.size(); ++i) {
    const bool found = std::any_of(heard_.begin(), heard_.end(),
                                   [&](const auto& entry) { return entry.second.owner == static_cast<int>(i); });
    if (!found && cases_[i]->needed && !cases_[i]->right.empty()) return false;
  }
  return true;
}

bool Judge::AllOver() const {
  return std::all_of(heard_.begin(), heard_.end(), [&](const auto& entry) {
    const Heard& heard = entry.second;
    const bool may_stay =
        heard.owner >= 0 && cases_[static_cast<size_t>(heard.owner)]->over_within == absl::InfiniteDuration();
    return !heard.said.open || may_stay;
  });
}

TruthRow Judge::RowOf(size_t number, std::vector<std::string>& others) const {
  const TruthCase& c = *cases_[number];
  TruthRow row{.name = c.name, .group = "", .found = "", .others = "", .wrong = ""};
  std::vector<std::string> wrong;
  const Heard* mine = nullptr;
  for (const auto& [id, heard] : heard_) {
    if (heard.owner == static_cast<int>(number) && (mine == nullptr || heard.right_at < mine->right_at)) mine = &heard;
  }
  for (const auto& [id, heard] : heard_) {
    if (heard.owner == static_cast<int>(number) && &heard != mine)
      others.push_back(absl::StrCat("once more ", Text(heard.said)));
  }
  if (mine == nullptr) {
    if (c.needed && !c.right.empty()) wrong.push_back("it was not found");
  } else {
    row.found = Text(mine->said);
    row.found_s = absl::ToDoubleSeconds(mine->right_at - began_);
    if (mine->right_at - began_ > c.limit) wrong.push_back("it was found too late");
    if (mine->ended_early) wrong.push_back("its finding was over before it was mended");
    if (mine->over_at < absl::InfiniteFuture() && !mine->ended_early)
      row.over_s = absl::ToDoubleSeconds(mine->over_at - mended_);
    if (c.over_within < absl::InfiniteDuration() && mine->over_at > mended_ + c.over_within)
      wrong.push_back("its finding was not over in time");
  }
  row.wrong = absl::StrJoin(wrong, ", ");
  return row;
}

std::vector<TruthRow> Judge::Rows(const std::string& group) const {
  std::vector<TruthRow> rows;
  std::vector<std::string> nobodys;
  for (const auto& [id, heard] : heard_) {
    if (heard.owner >= 0) continue;
    const std::string now = Text(heard.said);
    nobodys.push_back(absl::StrFormat(
        "%s%s%s (%+.0f s%s)", heard.again ? "again " : "", now, heard.first == now ? "" : ", first " + heard.first,
        absl::ToDoubleSeconds(heard.said.seen - began_), heard.said.open ? ", open" : ""));
  }
  for (size_t i = 0; i < cases_.size(); ++i) {
    std::vector<std::string> others;
    TruthRow row = RowOf(i, others);
    if (i == 0) others.insert(others.end(), nobodys.begin(), nobodys.end());
    row.group = group;
    row.others = absl::StrJoin(others, "; ");
    if (!others.empty()) absl::StrAppend(&row.wrong, row.wrong.empty() ? "" : ", ", "something else was found");
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cw::lab
