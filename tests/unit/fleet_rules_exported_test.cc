// SPDX-License-Identifier: Apache-2.0
// The alerts and the dashboard that are installed with the fleet service, held against what it exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/metrics_rules.h"
#include "userspace/fleet/main/fleet_metrics.h"

namespace cw::fleet {
namespace {

constexpr char kRules[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric-fleet.rules.yml";
constexpr char kRulesTest[] = CW_SOURCE_DIR "/packaging/prometheus/cwfabric-fleet.rules.test.yml";
constexpr char kDashboard[] = CW_SOURCE_DIR "/packaging/grafana/cwfabric-findings.json";

class FleetExported : public ::testing::Test {
 protected:
  // A page on which every metric occurs; `up` is Prometheus' own.
  FleetExported() : exports(page) { exports.any.insert({"receiver", "sla"}); }
  const std::string page = MetricsPage({.known = 1}, {.slas = {{.name = "s", .delay_known = true, .loss_known = true}}},
                                       {{.receiver = "http://am"}}, {});
  metrics::Exports exports;
};

TEST_F(FleetExported, ThePageIsAsPrometheusWantsIt) {
  const metrics::Ran ran = metrics::PromtoolOf("check metrics <", page);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, "");
}

TEST_F(FleetExported, RulesAreValidAndSayWhatTheyShouldOfGivenSeries) {
  const metrics::Ran check = metrics::Promtool(absl::StrCat("check rules ", kRules));
  EXPECT_EQ(check.status, 0) << check.output;
  const metrics::Ran test = metrics::Promtool(absl::StrCat("test rules ", kRulesTest));
  EXPECT_EQ(test.status, 0) << test.output;
}

TEST_F(FleetExported, RulesNameOnlyWhatIsExportedAndSayWhatToDo) {
  const std::string rules = metrics::TextOf(kRules), tests = metrics::TextOf(kRulesTest);
  EXPECT_EQ(exports.Unknown(rules), "");
  EXPECT_EQ(exports.Unknown(tests), "");
  EXPECT_EQ(exports.Unknown("cwfabric_fleet_refused_total{what=\"nothing\"}"),
            "cwfabric_fleet_refused_total: what is never \"nothing\"\n")
      << "this test can fail";
  EXPECT_GE(metrics::CheckAlerts(rules, tests), 8);
}

TEST_F(FleetExported, TheDashboardShowsOnlyWhatIsExported) {
  const std::vector<std::string> expressions = metrics::ExpressionsOf(kDashboard);
  EXPECT_GT(expressions.size(), 15u);
  for (const std::string& expression : expressions) EXPECT_EQ(exports.Unknown(expression), "") << expression;
  EXPECT_EQ(metrics::CheckExpressions(expressions), "");
}

}  // namespace
}  // namespace cw::fleet
