// SPDX-License-Identifier: Apache-2.0
//
// cwctl clock.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli_cwctl_rig.h"

namespace cw::cli {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

namespace v1 = ::cwfabric::v1;

TEST_F(Cwctl, ClockTrackingTellsStateErrorAndBound) {
  const std::string text = Run({"clock", "tracking"}).out;
  EXPECT_THAT(text, HasSubstr("state       synchronised\n"));
  EXPECT_THAT(text, HasSubstr("timeline    4fd1c02a77e6b010, epoch 2\n"));
  EXPECT_THAT(text, HasSubstr("fleet time  1233.567890046 s\n"));
  EXPECT_THAT(text, HasSubstr("offset      -1,000,000,077 ns from the local clock, rate -12345.678 ppb\n"));
  EXPECT_THAT(text, HasSubstr("error       within 35 ns, likely\n"));
  EXPECT_THAT(text, HasSubstr("bound       5.66 µs from the fleet time of any host on this timeline\n"));
  EXPECT_THAT(text, HasSubstr("neighbours  2 used of 4 compared with, 9 peers configured\n"));
  EXPECT_THAT(text,
              HasSubstr("TAI         2023-11-14T22:13:57.123456789, within 1.20 ms, from an anchor 2 links away\n"));
  EXPECT_THAT(text, HasSubstr("anchor      realtime, not used: the kernel's clock is not synchronised\n"));
  const json reply = RunJson({"clock", "tracking"});
  EXPECT_EQ(reply["state"], "synchronised");
  EXPECT_EQ(reply["offset_ns"], -1000000077);
  EXPECT_EQ(reply["tai"]["hops"], 2);
}

TEST_F(Cwctl, ClockThatIsRefusedSaysWhyAndShowsNoTime) {
  agent_.clock_known = false;
  const std::string text = Run({"clock", "tracking"}).out;
  EXPECT_THAT(text, HasSubstr("state       unknown: no majority: 2 of 4 neighbours contradict the others\n"));
  EXPECT_THAT(text, Not(HasSubstr("fleet time")));
  EXPECT_THAT(text, HasSubstr("updated     never\n"));
  EXPECT_EQ(RunJson({"clock", "tracking"})["state"], "unknown");
  EXPECT_TRUE(RunJson({"clock", "tracking"})["tai"].is_null());
  EXPECT_THAT(Run({"clock", "sources"}).out, HasSubstr("no peer is configured"));
  EXPECT_THAT(Run({"clock", "mesh"}).out, HasSubstr("no link is measured yet"));
  EXPECT_THAT(Run({"clock", "bound"}).out, HasSubstr("no bound: fleet time is not known here"));
}

TEST_F(Cwctl, ClockSourcesGiveOneLetterPerNeighbour) {
  const std::string text = Run({"clock", "sources"}).out;
  EXPECT_THAT(text, ContainsRegex("\n\\*  node2 +-1,000,000,123 ns +-12 ns +95 ns +5.21 µs +10.4 µs +80.0 ms"));
  EXPECT_THAT(text, ContainsRegex("\nx  node3 .* \\+100 µs"));
  EXPECT_THAT(text, ContainsRegex("\nw  node4 +– +– +– +– +– +–"));
  EXPECT_THAT(text, Not(HasSubstr("false ticker")));
  EXPECT_THAT(Run({"clock", "sources", "-v"}).out, HasSubstr("x false ticker: contradicts the majority"));
  EXPECT_EQ(RunJson({"clock", "sources"})["sources"].size(), 3u);
  const json one = RunJson({"clock", "sources", "node3"});
  ASSERT_EQ(one["sources"].size(), 1u);
  EXPECT_EQ(one["sources"][0]["reason"], "false_ticker");
  EXPECT_EQ(one["sources"][0]["link"]["state"], "synced");
}

TEST_F(Cwctl, ClockSourcesTellWhichAnchorSmears) {
  EXPECT_THAT(Run({"clock", "sources"}).out,
              ContainsRegex("\nx  node3 +\\+230 ms +40.0 µs +1  smears a leap second\n"));
  EXPECT_THAT(Run({"clock", "sources", "node2"}).out, Not(HasSubstr("ANCHOR")));
  const json anchors = RunJson({"clock", "sources"})["anchors"];
  ASSERT_EQ(anchors.size(), 1u);
  EXPECT_EQ(anchors[0]["smears"], true);
  EXPECT_EQ(anchors[0]["reason"], "false_ticker");
  EXPECT_EQ(anchors[0]["host"], "node3");
}

TEST_F(Cwctl, ClockMeshNamesSuspectsAndBoundAddsUp) {
  const std::string mesh = Run({"clock", "mesh"}).out;
  EXPECT_THAT(mesh, HasSubstr("-1.81 µs"));
  EXPECT_THAT(mesh, HasSubstr("one way is slower by 3.62 µs, or node3 lies\n"));
  EXPECT_THAT(mesh, HasSubstr("node1–node3 disagrees with the rest\n"));
  const std::string bound = Run({"clock", "bound"}).out;
  EXPECT_THAT(bound, HasSubstr("5.20 µs  link to node0"));
  EXPECT_THAT(bound, HasSubstr("5.66 µs  in all"));
  const json reply = RunJson({"clock", "bound"});
  double sum = 0;
  for (const json& term : reply["terms"]) sum += term["ns"].get<double>();
  EXPECT_EQ(sum, reply["bound_ns"].get<double>());
}

TEST_F(Cwctl, ClockSaysWhatItWants) {
  EXPECT_EQ(RunJson({"clock"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"clock", "nonsense"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"clock", "tracking", "--watch=soon"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunJson({"clock", "tracking", "node2"}, 2)["error"]["code"], "INVALID_ARGUMENT");
  const RunResult nobody = Run({"clock", "sources", "nobody"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("there is no peer nobody to compare clocks with; see cwctl clock sources"));
  const RunResult watched = Run({"clock", "sources", "--watch=100ms", "--count", "2", "--json"});
  EXPECT_EQ(std::count(watched.out.begin(), watched.out.end(), '\n'), 2);
  server_.reset();
  EXPECT_EQ(RunJson({"clock", "tracking"}, 3)["error"]["code"], "UNAVAILABLE");
}

}  // namespace
}  // namespace cw::cli
