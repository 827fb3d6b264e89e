// SPDX-License-Identifier: Apache-2.0
// What `cwlab traffic` sends: pairs and times as they are written, jobs as fabrics carry them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "userspace/lab/machine_drops.h"
#include "userspace/lab/traffic.h"

namespace cw::lab {
namespace {

using testing::HasSubstr;

std::string Words(const absl::StatusOr<std::vector<JobPair>>& pairs) {
  if (!pairs.ok()) return std::string(pairs.status().message());
  std::string words;
  for (const JobPair& pair : *pairs)
    words += "h" + std::to_string(pair.source) + "-h" + std::to_string(pair.destination) + " ";
  return words;
}

TEST(LabTraffic, WhatTheMachineItselfDroppedIsTold) {
  EXPECT_EQ(DroppedBySoftnet("017cfe0a 00000003 000001e6\n01bb4e96 000003e6 0000025a\n"), 3u + 998u);
  EXPECT_EQ(DroppedBySoftnet("\nno numbers\n"), 0u);
  EXPECT_EQ(MachineDropsText(0), "");
  EXPECT_THAT(MachineDropsText(998), HasSubstr("too small for that: its own processors lost 998 packets"));
}

TEST(LabTraffic, PairsAreReadAsTheyAreWritten) {
  EXPECT_EQ(Words(ParsePairs("h0-h2,h1-h3", 4)), "h0-h2 h1-h3 ");
  EXPECT_EQ(Words(ParsePairs("h3-h0", 4)), "h3-h0 ");
}

TEST(LabTraffic, AWrongPairIsToldWithTheHostsThatThereAre) {
  EXPECT_EQ(Words(ParsePairs("h0-h4", 4)), "no host \"h4\": the lab has h0 to h3");
  EXPECT_EQ(Words(ParsePairs("h0-leaf1", 4)), "no host \"leaf1\": the lab has h0 to h3");
  EXPECT_EQ(Words(ParsePairs("h-1-h0", 4)), "\"h-1-h0\" is no pair of hosts: write h0-h1, and commas between pairs");
  EXPECT_EQ(Words(ParsePairs("h01-h0", 4)), "no host \"h01\": the lab has h0 to h3");
  EXPECT_THAT(Words(ParsePairs("h1-h1", 4)), HasSubstr("cannot send to itself"));
  EXPECT_THAT(Words(ParsePairs("h0-h1,", 4)), HasSubstr("is no pair"));
}

TEST(LabTraffic, EachHostSendsToOneOnTheNextLeafUnlessToldOtherwise) {
  EXPECT_EQ(Words(AcrossLeaves(2, 1)), "h0-h1 h1-h0 ");
  EXPECT_EQ(Words(AcrossLeaves(2, 2)), "h0-h2 h1-h3 h2-h0 h3-h1 ");
  EXPECT_EQ(Words(AcrossLeaves(1, 3)), "h0-h1 h1-h2 h2-h0 ");
}

TEST(LabTraffic, ATimeIsASecondAtLeast) {
  EXPECT_EQ(*ParseTrafficTime("2s"), absl::Seconds(2));
  EXPECT_EQ(*ParseTrafficTime("1m30s"), absl::Seconds(90));
  EXPECT_EQ(*ParseTrafficTime(""), absl::InfiniteDuration());
  for (const char* wrong : {"2", "10ms", "-3s", "soon"})
    EXPECT_THAT(ParseTrafficTime(wrong).status().message(), HasSubstr("write 30s")) << wrong;
}

TEST(LabTraffic, ItsPacketsFitThePortsAndKeepTheRateThatWasAskedFor) {
  const JobSpec job = *TrafficJob({.mbps = 8}, {.mtu = 4500});
  EXPECT_EQ(job.path_mtu, 4096u);
  EXPECT_EQ(job.packet_interval, absl::Microseconds(4096));
  EXPECT_EQ(TrafficJob({}, {.mtu = 1500})->path_mtu, 1024u);
  EXPECT_EQ(FlowsOf(*TrafficJob({.all_to_all = true, .qps = 3}, {.hosts_per_leaf = 2})).size(), 4u * 3 * 3);
}

TEST(LabTraffic, OneHostAloneIsToldWhatIsMissing) {
  EXPECT_THAT(TrafficJob({}, {.leaves = 1}).status().message(), HasSubstr("--hosts-per-leaf"));
}

}  // namespace
}  // namespace cw::lab
