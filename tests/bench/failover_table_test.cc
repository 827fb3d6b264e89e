// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/failover_table.h"

#include <gtest/gtest.h>

#include <set>

namespace cw::bench {
namespace {

const FailoverCase& CaseOf(const std::string& name) {
  for (const FailoverCase& c : FailoverCases()) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << name;
  return FailoverCases().front();
}

const FailoverSystem& SystemOf(const std::string& name) {
  for (const FailoverSystem& system : FailoverSystems()) {
    if (system.name == name) return system;
  }
  ADD_FAILURE() << name;
  return FailoverSystems().front();
}

TEST(FaultCell, NeverIsMeasuredAndCannotIsNot) {
  EXPECT_EQ(FaultCell(Sight::kMay, std::nullopt), "-");
  EXPECT_EQ(FaultCell(Sight::kCannot, std::nullopt), "cannot see");
  EXPECT_EQ(FaultCell(Sight::kCannot, FaultFigures{.recovery_ms = {100}}), "cannot see") << "the pause was over";
  EXPECT_EQ(FaultCell(Sight::kNoAgent, std::nullopt), "no agent");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.not_recovered = 3}), "never");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.recovery_ms = {1, 2, 3}}), "2.0 / 3.0 / 3.0");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.recovery_ms = {1}, .not_recovered = 2}), "1.0 / 1.0 / 1.0, 2 never");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.has_recovery = false, .stall_ms = {7}}), "stall 7.0 / 7.0 / 7.0");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.not_recovered = 8, .ended_after = 3}), "never; all lost after 3");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.recovery_ms = {1}, .not_recovered = 2, .ended_after = 4}),
            "1.0 / 1.0 / 1.0, 2 never; all lost after 4");
  EXPECT_EQ(FaultCell(Sight::kMay, FaultFigures{.ended_after = 0}), "never; all lost before the first cut");
}

TEST(NothingLeft, SaysWhetherQueuePairsDiedOrWereNotSeen) {
  EXPECT_EQ(lab::NothingLeft(4, 8, 8), "all 8 flows lost after 4 cuts: nothing is left to cut");
  EXPECT_EQ(lab::NothingLeft(2, 8, 5),
            "no flow crossed a spine for 10 s after 2 cuts (5 of 8 flows lost): nothing is left to cut");
  EXPECT_EQ(lab::NothingLeft(0, 8, 8), "all 8 flows lost before the first cut: nothing is left to cut");
}

TEST(FaultTable, ALinePerFaultAndAColumnPerSystem) {
  FaultTable table({"ecmp", "cwfabric"});
  table.SetSight("slow_link", "ecmp", Sight::kCannot);
  table.SetMeasured("slow_link", "cwfabric", {.recovery_ms = {5}});
  table.SetMeasured("agent_killed", "cwfabric", {.not_recovered = 1});
  table.SetFailed("link_down", "ecmp");
  EXPECT_EQ(table.Text(),
            "| fault, ms p50 / p99 / max | ecmp | cwfabric |\n|---|---|---|\n"
            "| slow_link | cannot see | 5.0 / 5.0 / 5.0 |\n"
            "| agent_killed | - | never |\n"
            "| link_down | failed | - |\n");
}

TEST(SightOf, PeersAreNotBlamedForWhatTheyCannotSee) {
  for (const char* fault : {"data_only", "partial_10", "partial_1", "corrupt_10", "pause_100", "slow_link", "nic_down"})
    EXPECT_EQ(SightOf(SystemOf("frr_bfd_10ms"), CaseOf(fault)), Sight::kCannot) << fault;
  for (const char* fault : {"silent_forward", "silent_reverse", "link_down", "spine_reboot", "partial_50"})
    EXPECT_EQ(SightOf(SystemOf("frr_bfd_10ms"), CaseOf(fault)), Sight::kMay) << fault;
  EXPECT_EQ(SightOf(SystemOf("ecmp"), CaseOf("silent_forward")), Sight::kCannot);
  EXPECT_EQ(SightOf(SystemOf("ecmp"), CaseOf("link_down")), Sight::kMay);
  EXPECT_EQ(SightOf(SystemOf("ecmp"), CaseOf("agent_killed")), Sight::kNoAgent);
  for (const FailoverCase& c : FailoverCases()) EXPECT_EQ(SightOf(SystemOf("cwfabric"), c), Sight::kMay) << c.name;
}

TEST(SpecOf, TimersAreThoseOfTheCase) {
  Settings settings;
  settings.timeout = 16;
  const FailoverSystem& ours = SystemOf("cwfabric");
  EXPECT_EQ(SpecOf(CaseOf("silent_forward"), ours, settings).timeout, 16);
  EXPECT_EQ(SpecOf(CaseOf("silent_forward_20"), ours, settings).timeout, 20);
  EXPECT_EQ(SpecOf(CaseOf("partial_10_20"), ours, settings).timeout, 20);
  EXPECT_EQ(SpecOf(CaseOf("tail_both"), ours, settings).timeout, 20);
  EXPECT_EQ(SpecOf(CaseOf("peer_down"), ours, settings).timeout, 18) << "they outlive the outage";
}

TEST(SpecOf, LengthsAreTheCasesOrWhatTheSystemNeeds) {
  const FailoverSystem& bfd = SystemOf("frr_bfd_default");
  EXPECT_EQ(SpecOf(CaseOf("silent_forward"), bfd, {}).hold, absl::Milliseconds(2500));
  EXPECT_EQ(SpecOf(CaseOf("pause_100"), bfd, {}).hold, absl::Milliseconds(100));
  EXPECT_EQ(SpecOf(CaseOf("peer_restart"), SystemOf("cwfabric"), {}).hold, absl::Seconds(1));
}

TEST(FailoverCases, NamesAreUnique) {
  std::set<std::string> names;
  for (const FailoverCase& c : FailoverCases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

}  // namespace
}  // namespace cw::bench
