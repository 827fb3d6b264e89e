// SPDX-License-Identifier: Apache-2.0
// The lab's report of a run with hidden clocks: what is in its JSON, and that the page carries all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "userspace/lab/clock_report.h"

namespace cw::lab {
namespace {

constexpr int64_t kOriginNs = 5'000'000'000;

// Host 1 and 2 against host 0 every 10 ms, host 1 with one spike; and a pair that does not concern the reference.
std::vector<FleetPair> Samples() {
  std::vector<FleetPair> samples;
  for (int i = 0; i < 1000; ++i) {
    const int64_t true_ns = kOriginNs + i * int64_t{10'000'000};
    samples.push_back({.host = 1,
                       .other = 0,
                       .true_ns = true_ns,
                       .difference_ns = i == 777 ? -5000.0 : 100.0,
                       .error_est_ns = 400,
                       .bound_ns = 30'000});
    samples.push_back(
        {.host = 2, .other = 0, .true_ns = true_ns, .difference_ns = 20, .error_est_ns = 300, .bound_ns = 20'000});
    samples.push_back(
        {.host = 2, .other = 1, .true_ns = true_ns, .difference_ns = 9e9, .error_est_ns = 1, .bound_ns = 1});
  }
  return samples;
}

Report Page() {
  return {.title = "clocks",
          .headline = "",
          .notes = {},
          .comparisons = {},
          .tables = {ClockTable(Samples(), 0)},
          .phases = {{.name = "fleet time", .charts = ClockCharts(Samples(), 0, kOriginNs, 100), .marks = {}}}};
}

TEST(LabClockReport, EachHostHasItsErrorWithBothBands) {
  const nlohmann::json charts = ToJson(Page()).at("phases").at(0).at("charts");
  ASSERT_EQ(charts.size(), 4u);
  EXPECT_EQ(charts[0].at("title"), "h1: fleet time less h0's, and error_est around it");
  EXPECT_EQ(charts[3].at("title"), "h2: fleet time less h0's, and bound around it");
  for (size_t i : {size_t{0}, size_t{1}}) {
    const nlohmann::json& series = charts[i].at("series").at(0);
    const auto at = series.at("at_s").get<std::vector<double>>(),
               values = series.at("values").get<std::vector<double>>(),
               low = series.at("low").get<std::vector<double>>(), high = series.at("high").get<std::vector<double>>();
    ASSERT_TRUE(values.size() == at.size() && low.size() == at.size() && high.size() == at.size());
    const double reach_us = i == 0 ? 0.4 : 30;
    for (size_t k = 0; k < values.size(); ++k) {
      EXPECT_NEAR(high[k] - values[k], reach_us, 1e-9);
      EXPECT_NEAR(values[k] - low[k], reach_us, 1e-9);
    }
  }
}

TEST(LabClockReport, AChartIsThinButShowsEverySpike) {
  const Chart chart = ClockCharts(Samples(), 0, kOriginNs, 100)[0];
  const std::vector<double>& values = chart.series[0].values;
  EXPECT_LE(values.size(), 101u);
  const auto spike = std::min_element(values.begin(), values.end());
  EXPECT_DOUBLE_EQ(*spike, -5);
  EXPECT_NEAR(chart.series[0].at_s[static_cast<size_t>(spike - values.begin())], 7.77, 1e-9);
  EXPECT_TRUE(std::is_sorted(chart.series[0].at_s.begin(), chart.series[0].at_s.end()));
}

TEST(LabClockReport, TheTableTellsWhatIsCovered) {
  const Table table = ClockTable(Samples(), 0);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0],
            (std::vector<std::string>{"h1", "0.100", "0.100", "5.000", "0.400", "99.90 %", "30.000", "100.00 %"}));
}

TEST(LabClockReport, ThePageHoldsTheSameDataAndDrawsBands) {
  const Report report = Page();
  const std::string page = ToHtml(report);
  const size_t from = page.find("const report = ") + 15;
  const auto data = nlohmann::json::parse(page.substr(from, page.find(";\n", from) - from), nullptr, false);
  ASSERT_FALSE(data.is_discarded());
  EXPECT_EQ(data, ToJson(report));
  EXPECT_NE(page.find("\"class\": \"band\""), std::string::npos);
  EXPECT_EQ(page.find("<script src"), std::string::npos);
}

TEST(LabReport, SeriesWithoutABandSayNothingOfOne) {
  Report report;
  report.phases = {{.name = "p",
                    .charts = {{.title = "t", .unit = "us", .series = {{.name = "s", .at_s = {0}, .values = {1}}}}},
                    .marks = {}}};
  EXPECT_FALSE(ToJson(report)["phases"][0]["charts"][0]["series"][0].contains("low"));
}

TEST(LabReport, AStretchHasItsTimesCountedFromItsZero) {
  const Chart chart{
      .title = "t", .unit = "Mbit/s", .series = {{.name = "s", .at_s = {1, 2, 3, 4}, .values = {5, 6, 7, 8}}}};
  const Series cut = StretchOf(chart, 2, 3, 2.5).series.at(0);
  EXPECT_EQ(cut.at_s, (std::vector<double>{-0.5, 0.5}));
  EXPECT_EQ(cut.values, (std::vector<double>{6, 7}));
  const std::vector<Mark> marks = StretchOf(std::vector<Mark>{{1, "fault", "early"}, {3, "move", "in it"}}, 2, 3, 2.5);
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].at_s, 0.5);
  EXPECT_EQ(marks[0].text, "in it");
}

TEST(LabReport, ThePageLeadsWithWhatCameOfItAndShowsSystemsSideBySide) {
  const Chart chart{.title = "Goodput", .unit = "Mbit/s", .series = {{.name = "s", .at_s = {0, 1}, .values = {1, 0}}}};
  Report report{.title = "t", .headline = "twice as fast", .notes = {}, .comparisons = {}, .tables = {}, .phases = {}};
  report.comparisons = {
      {"goodput", {{"without", chart, {}}, {"with", chart, {{.at_s = 1, .kind = "move", .text = "m"}}}}}};
  const nlohmann::json data = ToJson(report);
  EXPECT_EQ(data.at("headline"), "twice as fast");
  const nlohmann::json& panels = data.at("comparisons").at(0).at("panels");
  ASSERT_EQ(panels.size(), 2u);
  EXPECT_EQ(panels[1].at("name"), "with");
  EXPECT_EQ(panels[1].at("marks").at(0).at("kind"), "move");
  EXPECT_EQ(panels[0].at("chart").at("series").at(0).at("values"), (nlohmann::json{1, 0}));
}

TEST(LabReport, ATableStandsInColumnsWhateverItsLetters) {
  const Table table{.title = "t", .header = {"", "with"}, .rows = {{"delay", "15 µs"}, {"rate", "9.5 %"}}};
  EXPECT_EQ(ToText(table), "t\n        with\ndelay  15 µs\nrate   9.5 %\n");
}

}  // namespace
}  // namespace cw::lab
