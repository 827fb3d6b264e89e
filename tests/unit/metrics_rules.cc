// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/metrics_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace cw::metrics {

Ran Promtool(const std::string& arguments) {
  Ran ran;
  std::FILE* pipe = popen(absl::StrCat("promtool ", arguments, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  char part[4096];
  for (size_t n = 0; (n = fread(part, 1, sizeof(part), pipe)) > 0;) ran.output.append(part, n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (ran.status == 127) ran.output = "promtool is missing: apt-get install prometheus";
  return ran;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

Ran PromtoolOf(const std::string& arguments, const std::string& text) {
  char name[] = "/tmp/cw-promtool-XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << text;
  const Ran ran = Promtool(absl::StrCat(arguments, " ", name));
  std::filesystem::remove(name);
  return ran;
}

Exports::Exports(const std::string& page) : read(page) {
  for (const Sample& sample : read.samples) {
    for (const auto& [label, value] : sample.labels) labels[read.FamilyOf(sample.name)][label].insert(value);
  }
}

std::string Exports::Unknown(const std::string& where) const {
  static const std::regex name("(cwfabric_[a-zA-Z0-9_]+)(\\{([^}]*)\\})?");
  static const std::regex matcher("([a-zA-Z_]+)\\s*(=~|!~|!=|=)\\s*\"([^\"]*)\"");
  std::string wrong;
  for (auto it = std::sregex_iterator(where.begin(), where.end(), name); it != std::sregex_iterator(); ++it) {
    const std::string family = read.FamilyOf((*it)[1]);
    if (family.empty()) absl::StrAppend(&wrong, "no metric ", (*it)[1].str(), "\n");
    const std::string braces = (*it)[3];
    for (auto m = std::sregex_iterator(braces.begin(), braces.end(), matcher);
         !family.empty() && m != std::sregex_iterator(); ++m)
      absl::StrAppend(&wrong, UnknownLabel(family, (*m)[1], (*m)[3]));
  }
  return wrong;
}

std::string Exports::UnknownLabel(const std::string& family, const std::string& label, const std::string& value) const {
  if (any.contains(label)) return "";
  const auto known = labels.find(family);
  if (known == labels.end() || known->second.count(label) == 0)
    return absl::StrCat(family, " has no label ", label, "\n");
  std::string wrong;
  for (const absl::string_view one : absl::StrSplit(value, '|')) {
    if (absl::StartsWith(one, "$")) continue;
    if (known->second.at(label).count(std::string(one)) == 0)
      absl::StrAppend(&wrong, family, ": ", label, " is never \"", one, "\"\n");
  }
  return wrong;
}

int CheckAlerts(const std::string& rules, const std::string& tests) {
  static const std::regex alert("- alert: (\\w+)([^]*?)(?=\n      - alert|\n  - name|$)");
  int alerts = 0;
  for (auto it = std::sregex_iterator(rules.begin(), rules.end(), alert); it != std::sregex_iterator();
       ++it, ++alerts) {
    const std::string name = (*it)[1], body = (*it)[2];
    for (const char* wanted : {"severity: ", "summary: \"{{ $labels.instance }}: ", "runbook: \""})
      EXPECT_THAT(body, ::testing::HasSubstr(wanted)) << name;
    EXPECT_TRUE(std::regex_search(tests, std::regex(absl::StrCat("alertname: ", name, "\n +exp_alerts"))))
        << name << " never fires in the tests";
  }
  return alerts;
}

namespace {

// Checks one panel, and adds its expressions.
void CheckPanel(const nlohmann::json& panel, std::set<int>& ids, std::vector<std::string>& expressions) {
  const std::string title = panel.at("title");
  EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << title << ": its id occurs twice";
  if (panel.at("type") == "row") return;
  EXPECT_FALSE(panel.at("fieldConfig").at("defaults").at("unit").get<std::string>().empty()) << title;
  EXPECT_EQ(panel.at("datasource").at("uid"), "${datasource}") << title;
  EXPECT_FALSE(panel.at("targets").empty()) << title;
  for (const nlohmann::json& target : panel.at("targets")) expressions.push_back(target.at("expr"));
}

}  // namespace

std::vector<std::string> ExpressionsOf(const std::string& path) {
  const nlohmann::json dashboard = nlohmann::json::parse(TextOf(path), nullptr, false);
  std::vector<std::string> expressions;
  EXPECT_FALSE(dashboard.is_discarded()) << path;
  if (dashboard.is_discarded()) return expressions;
  std::set<int> ids;
  for (const nlohmann::json& panel : dashboard.at("panels")) CheckPanel(panel, ids, expressions);
  for (const nlohmann::json& variable : dashboard.at("templating").at("list")) {
    if (variable.at("type") == "query") expressions.push_back(variable.at("query"));
  }
  EXPECT_EQ(dashboard.at("templating").at("list").at(0).at("name"), "datasource") << path;
  EXPECT_EQ(absl::StrCat(dashboard.at("uid").get<std::string>(), ".json"), std::filesystem::path(path).filename());
  return expressions;
}

std::string CheckExpressions(const std::vector<std::string>& expressions) {
  std::string rules = "groups:\n- name: dashboards\n  rules:\n";
  int number = 0;
  for (const std::string& expression : expressions) {
    if (absl::StartsWith(expression, "label_values(")) continue;  // Grafana's own
    const std::string filled = absl::StrReplaceAll(expression, {{"$__rate_interval", "5m"}, {"'", "''"}});
    absl::StrAppend(&rules, "  - {record: expression_", number++, ", expr: '", filled, "'}\n");
  }
  const Ran ran = PromtoolOf("check rules", rules);
  return ran.status == 0 ? "" : ran.output;
}

}  // namespace cw::metrics
