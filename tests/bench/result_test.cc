// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/bench_result.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/markdown.h"

namespace cw::bench {
namespace {

TEST(BenchResult, QuantilesAreOfTheNearestRank) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({7}, 0.99), 7);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0.51), 3);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 1), 4);
  std::vector<double> ramp;
  for (int i = 0; i <= 100; ++i) ramp.push_back(i);
  EXPECT_EQ(Quantile(ramp, 0.99), 99);
}

TEST(BenchResult, FileHasTheContractsFieldsAndReadsBack) {
  const std::string folder = std::filesystem::temp_directory_path() / ("cwbench-" + std::to_string(getpid()));
  const std::string path = folder + "/deep/x.json";
  Report report("dataplane");
  report.Add("ingress_roce", "cwfabric", "cost", "ns", {70, 80, 75});
  ASSERT_TRUE(report.Write(path).ok());
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("name"), "dataplane");
  EXPECT_TRUE(json.at("machine").at("cores").get<int>() > 0);
  EXPECT_FALSE(json.at("commit").get<std::string>().empty());
  const auto& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("case"), "ingress_roce");
  EXPECT_EQ(row.at("system"), "cwfabric");
  EXPECT_EQ(row.at("n"), 3);
  EXPECT_EQ(row.at("p50"), 75);
  EXPECT_EQ(row.at("max"), 80);
  const auto again = Report::Read(path);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->Table(), report.Table());
  std::ofstream(path) << "{\"name\": 3}";
  EXPECT_EQ(Report::Read(path).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Report::Read(folder + "/none").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove_all(folder);
}

TEST(BenchResult, MarkdownHasOneLinePerMetricAndOneColumnPerCase) {
  Report report("clock");
  report.Add("load_0", "cwfabric", "abs_error", "ns", {10, 20, 30});
  report.Add(Row{"load_0", "cwfabric", "coverage", "percent", 9, 99.983, 99.983, 99.983});
  report.Add(Row{"load_80", "ecmp", "recovery", "ms", 0, 0, 0, 0});
  report.Add("load_80", "cwfabric", "abs_error", "ns", {1.234, 123.4});
  EXPECT_EQ(Markdown(report),
            "| clock | load_0 | load_80 |\n"
            "|---|---|---|\n"
            "| cwfabric: abs_error, ns | 20 / 30 / 30 | 1.23 / 123 / 123 |\n"
            "| cwfabric: coverage, percent | 99.983 | – |\n"
            "| ecmp: recovery, ms | – | never |\n");
}

}  // namespace
}  // namespace cw::bench
