// SPDX-License-Identifier: Apache-2.0
// The alerts and dashboards that are installed with the agent, held against what it exports: by promtool, and name by
// name.
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
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "metrics_filled.h"
#include "userspace/metrics/families.h"

namespace cw::metrics {
namespace {

constexpr char kRules[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric.rules.yml";
constexpr char kRulesTest[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric.rules.test.yml";
const char* const kDashboards[] = {CW_SOURCE_DIR "/packaging/grafana/cwfabric-fleet.json",
                                   CW_SOURCE_DIR "/packaging/grafana/cwfabric-host.json"};

struct Ran {
  int status = -1;
  std::string output;
};

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

class Exported : public ::testing::Test {
 protected:
  Exported() : text(Exposition(Families(Filled({.nics = 2})))), read(text) {
    for (const Sample& sample : read.samples) {
      for (const auto& [label, value] : sample.labels) labels[read.FamilyOf(sample.name)][label].insert(value);
    }
  }

  // Every metric, label and value of a label that a text names; what is wrong, "" when nothing is.
  std::string Unknown(const std::string& where) const {
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

  std::string UnknownLabel(const std::string& family, const std::string& label, const std::string& value) const {
    if (label == "job" || label == "instance") return "";  // Prometheus' own
    const auto known = labels.find(family);
    if (known == labels.end() || known->second.count(label) == 0)
      return absl::StrCat(family, " has no label ", label, "\n");
    std::string wrong;
    for (const absl::string_view one : absl::StrSplit(value, '|')) {
      if (absl::StartsWith(one, "$") || label == "nic") continue;
      if (known->second.at(label).count(std::string(one)) == 0)
        absl::StrAppend(&wrong, family, ": ", label, " is never \"", one, "\"\n");
    }
    return wrong;
  }

  const std::string text;
  const Reading read;
  std::map<std::string, std::map<std::string, std::set<std::string>>> labels;  // by family, label
};

TEST_F(Exported, EveryFamilyHasHelpATypeAndAConventionalName) {
  EXPECT_GT(read.types.size(), 100u);
  for (const auto& [family, type] : read.types) {
    EXPECT_FALSE(read.helps.count(family) == 0 || read.helps.at(family).empty()) << family << " has no help";
    EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram") << family << " " << type;
    EXPECT_EQ(type == "counter", family.size() > 6 && family.substr(family.size() - 6) == "_total") << family;
  }
  for (const Sample& sample : read.samples) EXPECT_NE(read.FamilyOf(sample.name), "") << sample.name;
  char name[] = "/tmp/cw-exposition-XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << text;
  const Ran ran = Promtool(absl::StrCat("check metrics < ", name));
  std::filesystem::remove(name);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, "") << "what promtool's lint says";
}

TEST_F(Exported, RulesAreValidAndSayWhatTheyShouldOfGivenSeries) {
  const Ran check = Promtool(absl::StrCat("check rules ", kRules));
  EXPECT_EQ(check.status, 0) << check.output;
  const Ran test = Promtool(absl::StrCat("test rules ", kRulesTest));
  EXPECT_EQ(test.status, 0) << test.output;
}

TEST_F(Exported, RulesNameOnlyWhatIsExported) {
  EXPECT_EQ(Unknown(TextOf(kRules)), "");
  EXPECT_EQ(Unknown(TextOf(kRulesTest)), "");
  EXPECT_EQ(Unknown("cwfabric_no_such_thing > 0"), "no metric cwfabric_no_such_thing\n") << "this test can fail";
  EXPECT_EQ(Unknown("cwfabric_paths{state=\"daed\"}"), "cwfabric_paths: state is never \"daed\"\n");
  EXPECT_EQ(Unknown("cwfabric_paths{stat=\"dead\"}"), "cwfabric_paths has no label stat\n");
}

TEST_F(Exported, EveryAlertSaysWhatToDoAndIsTested) {
  const std::string rules = TextOf(kRules), tests = TextOf(kRulesTest);
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
  EXPECT_GE(alerts, 20);
}

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

TEST_F(Exported, DashboardsShowOnlyWhatIsExported) {
  for (const char* path : kDashboards) {
    const std::vector<std::string> expressions = ExpressionsOf(path);
    EXPECT_GT(expressions.size(), 20u) << path;
    for (const std::string& expression : expressions) EXPECT_EQ(Unknown(expression), "") << path << ": " << expression;
  }
}

TEST_F(Exported, ExpressionsOfDashboardsAreValid) {
  std::string rules = "groups:\n- name: dashboards\n  rules:\n";
  int number = 0;
  for (const char* path : kDashboards) {
    for (const std::string& expression : ExpressionsOf(path)) {
      if (absl::StartsWith(expression, "label_values(")) continue;  // Grafana's own
      const std::string filled = absl::StrReplaceAll(expression, {{"$__rate_interval", "5m"}, {"'", "''"}});
      absl::StrAppend(&rules, "  - {record: expression_", number++, ", expr: '", filled, "'}\n");
    }
  }
  char name[] = "/tmp/cw-expressions-XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << rules;
  const Ran ran = Promtool(absl::StrCat("check rules ", name));
  std::filesystem::remove(name);
  EXPECT_EQ(ran.status, 0) << ran.output;
}

}  // namespace
}  // namespace cw::metrics
