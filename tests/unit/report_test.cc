// SPDX-License-Identifier: Apache-2.0
// What was decided and not done: its lines, its file, and what is made of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "userspace/report/item.h"
#include "userspace/report/summary.h"
#include "userspace/report/writer.h"

namespace cw::report {
namespace {

Item MakeItem(int64_t time_ns, const std::string& kind, const std::string& flow) {
  Item item{.time_unix_ns = time_ns, .kind = kind, .flow = flow, .pair = "10.0.0.10 > 10.0.1.10", .peer = "node2"};
  item.slot = 1;
  item.to_slot = 2;
  item.links = {"10.1.1.0", "*"};
  item.job = "train";
  item.text = "queue pair to node2 would leave path 1";
  item.evidence = {{"psn", "7"}};
  item.recording_unix_ns = 5;
  item.window = 12;
  return item;
}

class ReportFile : public ::testing::Test {
 protected:
  ReportFile() {
    char name[] = "/tmp/cw-report-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/report.jsonl";
  }
  ~ReportFile() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Writer> Open(uint64_t most_bytes = 1 << 20) {
    auto writer = Writer::Open(file_, most_bytes);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return writer.ok() ? *std::move(writer) : nullptr;
  }
  std::string folder_, file_;
};

TEST(ReportItem, ALineGivesTheItemBack) {
  Item item = MakeItem(3, "failover", "0b5c91fe");
  item.stall_ms = 12.5;
  item.goodput_share = 0.25;
  item.how = "measured";
  item.times = 4;
  const std::optional<Item> again = FromLine(ToLine(item));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(ToLine(*again), ToLine(item));
  EXPECT_EQ(again->links, item.links);
  EXPECT_EQ(again->stall_ms, item.stall_ms);
  EXPECT_EQ(again->window, 12);
  const std::string line = ToLine(item);
  for (size_t cut = 0; cut + 2 < line.size(); ++cut) EXPECT_FALSE(FromLine(line.substr(0, cut)).has_value()) << cut;
  EXPECT_FALSE(FromLine("{\"t\": \"x\"}").has_value());
}

TEST(ReportItem, AlikeDecisionsAreCountedAndNotToldAgainForTenMinutes) {
  Repeats repeats;
  EXPECT_EQ(repeats.Tell(1), 1u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(repeats.Tell(100 + i), 0u);
  EXPECT_EQ(repeats.Tell(Repeats::kAgainNs + 1), 6u);
}

TEST_F(ReportFile, OutlivesARestartAndATornLine) {
  ASSERT_TRUE(Open()->Add(MakeItem(1, "failover", "a")).ok());
  std::ofstream(file_, std::ios::app) << "{\"t\": 2, \"ki";  // killed while it wrote
  ASSERT_TRUE(Open()->Add(MakeItem(3, "balance", "b")).ok());
  const auto items = ReadFiles(file_);
  ASSERT_TRUE(items.ok());
  EXPECT_EQ(items->torn, 1u);
  ASSERT_EQ(items->items.size(), 2u);
  EXPECT_EQ(items->items[1].flow, "b");
}

TEST_F(ReportFile, StaysWithinItsBoundAndKeepsTheNewest) {
  constexpr uint64_t kMost = 20'000;
  for (int i = 0; i < 1000; ++i) {
    static std::unique_ptr<Writer> writer;
    if (i % 100 == 0) writer = Open(kMost);
    ASSERT_TRUE(writer->Add(MakeItem(i, "loss", std::to_string(i))).ok());
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) bytes += entry.file_size();
    ASSERT_LE(bytes, kMost);
    if (i == 999) writer.reset();
  }
  const auto items = ReadFiles(file_);
  ASSERT_TRUE(items.ok());
  EXPECT_GT(items->items.size(), 25u);
  EXPECT_EQ(items->items.back().flow, "999");
  EXPECT_EQ(items->items.back().time_unix_ns - items->items.front().time_unix_ns + 1,
            static_cast<int64_t>(items->items.size()))
      << "none is missing in between";
}

TEST_F(ReportFile, WithoutAFileThatIsSaid) {
  EXPECT_TRUE(absl::IsNotFound(ReadFiles(file_).status()));
  EXPECT_FALSE(Writer::Open(folder_ + "/none/report", 1000).ok());
}

Items Week() {
  Items items;
  std::stringstream lines;
  lines << ToLine(MakeItem(10, "failover", "a"));
  Item known = MakeItem(10, "failover", "a");
  known.stall_ms = 400;
  lines << ToLine(MakeItem(20, "failover", "b")) << ToLine(known);  // the harm became known later
  Item collision = MakeItem(30, "balance", "a");
  collision.goodput_share = 0.5;
  collision.times = 3;
  collision.job = "infer";
  lines << ToLine(collision);
  collision.time_unix_ns = 40;
  collision.goodput_share = 0.25;
  collision.times = 1;
  lines << ToLine(collision);
  Read(lines, items);
  return items;
}

TEST(ReportSummary, TheLaterLineOfADecisionHolds) {
  const Items items = Week();
  ASSERT_EQ(items.items.size(), 4u);
  EXPECT_EQ(items.items[0].stall_ms, 400);
}

TEST(ReportSummary, GroupsByKind) {
  const std::vector<Group> groups = Summarise(Week(), 0, By::kKind);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].key, "failover") << "the most harmful first";
  EXPECT_EQ(groups[0].decisions, 2u);
  EXPECT_EQ(groups[0].flows, 2u);
  EXPECT_EQ(groups[0].stall_ms, 400);
  EXPECT_EQ(groups[0].unknown, 1u);
  EXPECT_EQ(groups[1].decisions, 4u);
  EXPECT_DOUBLE_EQ(groups[1].goodput_share, 0.375);
  EXPECT_EQ(groups[1].goodput_items, 2u);
}

TEST(ReportSummary, GroupsByJobLinkAndPairSinceATime) {
  std::vector<Group> groups = Summarise(Week(), 0, By::kJob);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].key, "train");
  EXPECT_EQ(groups[1].key, "infer");
  groups = Summarise(Week(), 0, By::kLink);
  ASSERT_EQ(groups.size(), 2u) << "each link of the path";
  EXPECT_EQ(groups[0].decisions, 6u);
  groups = Summarise(Week(), 25, By::kPair);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].decisions, 4u);
  EXPECT_EQ(groups[0].stall_ms, 0);
  EXPECT_TRUE(Summarise(Week(), 100, By::kKind).empty());
}

}  // namespace
}  // namespace cw::report
