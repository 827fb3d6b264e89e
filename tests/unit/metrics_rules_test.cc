// SPDX-License-Identifier: Apache-2.0
// The alerts and dashboards that are installed with the agent, held against what it exports.
#include "tests/unit/metrics_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/metrics/families.h"

namespace cw::metrics {
namespace {

constexpr char kRules[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric.rules.yml";
constexpr char kRulesTest[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric.rules.test.yml";
const char* const kDashboards[] = {CW_SOURCE_DIR "/packaging/grafana/cwfabric-fleet.json",
                                   CW_SOURCE_DIR "/packaging/grafana/cwfabric-host.json"};

class Exported : public ::testing::Test {
 protected:
  Exported() : text(Exposition(Families(Filled({.nics = 2})))), exports(text) { exports.any.insert("nic"); }
  const std::string text;
  Exports exports;
};

TEST_F(Exported, EveryFamilyHasHelpATypeAndAConventionalName) {
  EXPECT_GT(exports.read.types.size(), 100u);
  for (const auto& [family, type] : exports.read.types) {
    EXPECT_FALSE(exports.read.helps.count(family) == 0 || exports.read.helps.at(family).empty())
        << family << " has no help";
    EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram") << family << " " << type;
    EXPECT_EQ(type == "counter", family.size() > 6 && family.substr(family.size() - 6) == "_total") << family;
  }
  for (const Sample& sample : exports.read.samples) EXPECT_NE(exports.read.FamilyOf(sample.name), "") << sample.name;
  const Ran ran = PromtoolOf("check metrics <", text);
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
  EXPECT_EQ(exports.Unknown(TextOf(kRules)), "");
  EXPECT_EQ(exports.Unknown(TextOf(kRulesTest)), "");
  EXPECT_EQ(exports.Unknown("cwfabric_no_such_thing > 0"), "no metric cwfabric_no_such_thing\n")
      << "this test can fail";
  EXPECT_EQ(exports.Unknown("cwfabric_paths{state=\"daed\"}"), "cwfabric_paths: state is never \"daed\"\n");
  EXPECT_EQ(exports.Unknown("cwfabric_paths{stat=\"dead\"}"), "cwfabric_paths has no label stat\n");
}

TEST_F(Exported, EveryAlertSaysWhatToDoAndIsTested) { EXPECT_GE(CheckAlerts(TextOf(kRules), TextOf(kRulesTest)), 20); }

TEST_F(Exported, DashboardsShowOnlyWhatIsExported) {
  for (const char* path : kDashboards) {
    const std::vector<std::string> expressions = ExpressionsOf(path);
    EXPECT_GT(expressions.size(), 20u) << path;
    for (const std::string& expression : expressions)
      EXPECT_EQ(exports.Unknown(expression), "") << path << ": " << expression;
  }
}

TEST_F(Exported, ExpressionsOfDashboardsAreValid) {
  for (const char* path : kDashboards) EXPECT_EQ(CheckExpressions(ExpressionsOf(path)), "") << path;
}

}  // namespace
}  // namespace cw::metrics
