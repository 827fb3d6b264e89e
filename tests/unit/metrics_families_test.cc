// SPDX-License-Identifier: Apache-2.0
// Names, values and the number of series of what Prometheus reads.
#include "userspace/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "metrics_filled.h"

namespace cw::metrics {
namespace {

// docs/metrics.md says how many series a host has; more fail here.
constexpr size_t kMostSeries = 1400;

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

TEST(MetricFamilies, HaveTheValuesOfTheRepliesInBaseUnits) {
  const Reading read(Exposition(Families(Filled())));
  EXPECT_EQ(read.Value("cwfabric_build_info", {{"version", "0.1.0"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_mode", {{"mode", "protect"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_mode", {{"mode", "observe"}}), 0);
  EXPECT_EQ(read.Value("cwfabric_capability_allowed", {{"capability", "balance"}}), 2);
  EXPECT_EQ(read.Value("cwfabric_scope_mode", {{"scope", "NIC eth0"}, {"from", "operator"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_paths", {{"nic", "eth0"}, {"state", "dead"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_paths", {{"nic", "eth0"}, {"state", "up"}}), 8);
  EXPECT_EQ(read.Value("cwfabric_paths_kept_free", {{"reason", "lossy"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_roce_sent_bytes_total", {{"nic", "eth0"}}), 40960);
  EXPECT_EQ(read.Value("cwfabric_roce_received_cnps_total", {{"nic", "eth0"}}), 2);
  EXPECT_EQ(read.Value("cwfabric_peers", {{"state", "unreachable"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_link_flaps_1h", {{"nic", "eth0"}}), 2);
  EXPECT_EQ(read.Value("cwfabric_link_down_total"), 3);
  EXPECT_EQ(read.Value("cwfabric_records_lost_total", {{"ring", "probe"}}), 7);
  EXPECT_EQ(read.Value("cwfabric_events_total", {{"type", "path"}, {"severity", "alert"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_slots_died_total"), 1);
  EXPECT_EQ(read.Value("cwfabric_rdma_out_of_sequence_total", {{"device", "mlx5_0"}, {"port", "1"}}), 12);
  EXPECT_EQ(read.Value("cwfabric_clock_state", {{"state", "synchronised"}}), 1);
  EXPECT_DOUBLE_EQ(read.Value("cwfabric_clock_bound_seconds"), 5.66e-6);
  EXPECT_DOUBLE_EQ(read.Value("cwfabric_prober_lateness_p99_seconds"), 40e-6);
  EXPECT_EQ(read.Value("cwfabric_clock_sources", {{"reason", "false_ticker"}}), 1);
  EXPECT_EQ(read.Value("cwfabric_clock_links_suspect"), 1);
  EXPECT_DOUBLE_EQ(read.Value("cwfabric_worst_path_queueing_seconds", {{"path", "2"}}), 1e-3);
  EXPECT_DOUBLE_EQ(read.Value("cwfabric_top_flow_bytes_per_second", {{"qp", "0x11"}}), 1e9);
}

TEST(MetricFamilies, DelaysAreAHistogramPerNicRailAndDirection) {
  const Reading read(Exposition(Families(Filled())));
  std::map<std::string, std::string> labels = {{"nic", "eth0"}, {"rail", "own"}, {"direction", "forward"}};
  EXPECT_EQ(read.types.at("cwfabric_path_owd_seconds"), "histogram");
  EXPECT_EQ(read.Value("cwfabric_path_owd_seconds_count", labels), 1);
  EXPECT_DOUBLE_EQ(read.Value("cwfabric_path_owd_seconds_sum", labels), 5.31e-6);
  std::vector<double> counts;
  bool infinite = false;
  for (const Sample& sample : read.samples) {
    if (sample.name != "cwfabric_path_owd_seconds_bucket" || sample.labels.at("rail") != "own") continue;
    if (sample.labels.at("direction") == "forward") counts.push_back(sample.value);
    if (sample.labels.at("direction") != "reverse") continue;
    EXPECT_EQ(sample.value, sample.labels.at("le") == "+Inf" ? 1 : 0) << "50 ms are above every bound";
    infinite |= sample.labels.at("le") == "+Inf";
  }
  EXPECT_TRUE(infinite);
  ASSERT_EQ(counts.size(), DelayHistogram::kBounds + 1);
  EXPECT_EQ(std::vector<double>(counts.begin(), counts.begin() + 4), (std::vector<double>{0, 0, 0, 1}))
      << "5.3 µs are above 4 and below 8";
  EXPECT_EQ(counts.back(), 1);
}

TEST(MetricFamilies, UnknownIsLeftOutOrGrows) {
  Snapshot snapshot = Filled();
  snapshot.status.set_data_age_s(-1);
  snapshot.clock->mutable_tracking()->set_state(v1::ClockTracking::STATE_UNKNOWN);
  const Reading unknown(Exposition(Families(snapshot)));
  EXPECT_EQ(unknown.Value("cwfabric_agent_data_age_seconds"), 3700) << "nothing measured since the start";
  EXPECT_EQ(unknown.types.count("cwfabric_clock_bound_seconds"), 0u);
  EXPECT_EQ(unknown.Value("cwfabric_clock_state", {{"state", "unknown"}}), 1);
  snapshot.clock.reset();
  EXPECT_EQ(Reading(Exposition(Families(snapshot))).types.count("cwfabric_clock_state"), 0u);
}

TEST(MetricFamilies, SeriesDoNotGrowWithPeers) {
  const size_t few = Reading(Exposition(Families(Filled({.nics = 8, .peers = 2, .chosen = false})))).samples.size();
  const Snapshot large = Filled({.nics = 8, .peers = 1024, .addresses = 8, .chosen = false});
  const double before_ms = ThreadCpuMs();
  const std::string text = Exposition(Families(large));
  const double took_ms = ThreadCpuMs() - before_ms;
  const Reading many(text);
  std::cout << "8 NICs, 1024 peers: " << many.samples.size() << " series in " << many.types.size() << " families, "
            << text.size() << " bytes, " << took_ms << " ms of CPU to make the text\n";
  EXPECT_EQ(many.samples.size(), few);
  EXPECT_LE(many.samples.size(), kMostSeries);
  EXPECT_LT(took_ms, 100) << "ten times what is wanted";
}

TEST(MetricFamilies, NoSeriesOccursTwice) {
  std::set<std::pair<std::string, std::map<std::string, std::string>>> seen;
  for (const Sample& sample : Reading(Exposition(Families(Filled({.nics = 3})))).samples)
    EXPECT_TRUE(seen.emplace(sample.name, sample.labels).second) << sample.name;
}

// docs/metrics.md holds the table as it is generated; on a difference the test prints what belongs there. Counters of
// the dataplane and of RDMA devices have names of their own elsewhere.
TEST(MetricsReference, IsWhatTheDocumentationSays) {
  const Snapshot snapshot = Filled();
  std::set<std::string> elsewhere;
  for (const v1::Counter& counter : snapshot.counters.counters())
    elsewhere.insert("cwfabric_" + counter.name() + "_total");
  for (const HwCounter& counter : snapshot.rdma.counters)
    elsewhere.insert("cwfabric_rdma_" + HwMetricName(counter.name));
  std::vector<prometheus::MetricFamily> listed = Families(snapshot);
  std::erase_if(listed, [&](const prometheus::MetricFamily& family) { return elsewhere.count(family.name) != 0; });
  std::ifstream file(CW_SOURCE_DIR "/docs/metrics.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(ReferenceMarkdown(listed)), std::string::npos)
      << "docs/metrics.md does not hold this table:\n"
      << ReferenceMarkdown(listed);
}

}  // namespace
}  // namespace cw::metrics
