// SPDX-License-Identifier: Apache-2.0
// What may be done and what is undone: single capabilities, the slow return, the breaker, the report of what was only
// observed. Real agents on the lab's fabric.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/lab/steering_rig.h"
#include "userspace/replay/replay.h"
#include "userspace/report/summary.h"

namespace cw::lab {
namespace {

TEST_F(Steering, FailoverAloneIsObservedThenActs) {
  Up(SmallSpec("protect"));
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(Start(Paced(8)));
  ASSERT_NO_FATAL_FAILURE(Allow("failover", v1::ALLOW_OBSERVE));
  EXPECT_EQ(Status().allowed(0).allow(), v1::ALLOW_OBSERVE);
  EXPECT_EQ(Status().allowed(0).by_mode(), v1::ALLOW_ACT);
  ASSERT_TRUE(Eventually([&] { return PathsKnown(8); }));
  const auto before = Slots();
  const int spine = SpineOfSlot(before.begin()->second);
  ASSERT_GE(spine, 0);
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] { return !Told("move", "would move").empty(); }));
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u);
  EXPECT_EQ(Slots(), before);
  ASSERT_NO_FATAL_FAILURE(Allow("failover", v1::ALLOW_MODE));
  EXPECT_TRUE(Eventually([&] { return testbed->CounterSum("moves_dead") > 0; }));
}

// An operator holds one NIC back: its flows are on native ports, a dead path is told of and not left, by the agent nor
// by the programs. The other host, whose mode is its own, goes on.
TEST_F(Steering, ANicInObserveIsLeftAloneWhileTheHostProtects) {
  Up(SmallSpec("protect"));
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  ASSERT_NO_FATAL_FAILURE(Start(Paced(8)));
  ASSERT_TRUE(Eventually([&] { return PathsKnown(8) && Status().flows().steered() == 8; }));
  v1::SetModeRequest request;
  request.set_mode(v1::MODE_OBSERVE);
  request.set_nic(Status().nics(0).name());
  request.set_for_s(600);
  const auto reply = testbed->agent(0).SetMode(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(absl::StrContains(reply->undo(), "mode optimize --nic "));
  ASSERT_EQ(Status().scopes_size(), 1);
  EXPECT_TRUE(Status().scopes(0).holds_back());
  EXPECT_EQ(Status().mode(), v1::MODE_PROTECT);
  ASSERT_TRUE(Eventually([&] { return Status().flows().steered() == 0 && PathsKnown(8); }));
  const v1::QpsReply flows = testbed->agent(0).Qps({}).value_or(v1::QpsReply());
  for (const v1::Flow& flow : flows.flows()) EXPECT_EQ(flow.udp_port(), flow.udp_port_native());
  v1::WhyRequest why;
  why.set_what(flows.flows(0).id());
  const v1::WhyReply held = testbed->agent(0).Why(why).value_or(v1::WhyReply());
  EXPECT_TRUE(std::any_of(held.holds().begin(), held.holds().end(), [](const auto& h) { return h.kind() == "scope"; }));
  const auto before = Slots();
  const auto moved_by_host = [&] {
    const v1::StatusReply status = Status();
    uint64_t moved = 0;
    for (const v1::Counter& c : status.counters()) moved += c.name() == "moves_dead" ? c.value() : 0;
    return moved;
  };
  const int spine = SpineOfSlot(before.begin()->second);
  ASSERT_GE(spine, 0);
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] { return !Told("move", "would move").empty(); }));
  EXPECT_EQ(moved_by_host(), 0u);
  EXPECT_EQ(Slots(), before);
  // That is over, and what is dead is left.
  request.set_mode(v1::MODE_OPTIMIZE);
  request.set_for_s(0);
  ASSERT_TRUE(testbed->agent(0).SetMode(request).ok());
  EXPECT_EQ(Status().scopes_size(), 0);
  EXPECT_TRUE(Eventually([&] { return moved_by_host() > 0; }));
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

TEST_F(Steering, FlowsComeBackToARecoveredPathOneThenTwo) {
  Up(SmallSpec("protect"));
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  ASSERT_NO_FATAL_FAILURE(Start(Paced(16)));
  ASSERT_TRUE(Eventually([&] { return PathsKnown(16) && testbed->CounterSum("flows_assigned") >= 16; }));
  const auto before = Slots();
  std::map<int, int> per_slot;
  for (const auto& [flow, slot] : before) ++per_slot[slot];
  const int slot = before.begin()->second;
  const int spine = SpineOfSlot(slot);
  ASSERT_GE(spine, 0);
  ASSERT_GE(per_slot[slot], 3) << "16 flows on four spines";
  const LinkDirection link = LinkDirection::SpineToLeaf(spine, 1);
  ASSERT_TRUE(testbed->fabric().SetFault(link, Fault::Drop()).ok());
  const auto on_it = [&] {
    const auto now = Slots();
    return std::count_if(now.begin(), now.end(), [&](const auto& entry) { return entry.second == slot; });
  };
  ASSERT_TRUE(Eventually([&] { return on_it() == 0; }));
  ASSERT_TRUE(testbed->fabric().ClearFault(link).ok());
  EXPECT_TRUE(Eventually([&] { return Slots() == before; })) << "every flow is where it was";
  const std::vector<Mark> back = Told("return", "goes back");
  ASSERT_EQ(static_cast<int>(back.size()), per_slot[slot]);
  EXPECT_GT(back[1].at_s - back[0].at_s, 0.8) << "one";
  EXPECT_LT(back[2].at_s - back[1].at_s, 0.3) << "then two";
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

// Two spines are idle, and their probes clean, but they lose 8 % of data: moves for balance go there, and do harm.
class SteeringToHarm : public Steering {
 protected:
  // Four flows share one spine, a fifth has another; the two that are left lose data.
  void SetUpHarm() {
    emulator.reset();
    testbed.reset();
    TestbedSpec spec = SmallSpec("optimize");
    spec.active_interval = absl::Milliseconds(5);
    spec.adjust = [](int, config::Config& config) { config.steering.allow.place = config::AllowSetting::kObserve; };
    Up(spec);
    ASSERT_NE(testbed, nullptr);
    ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_OBSERVE));
    std::tie(full_, other_) = StartCollision(4);
    ASSERT_GE(full_, 0);
    for (int spine = 0; spine < 4; ++spine) {
      if (spine == full_ || spine == other_) continue;
      ASSERT_TRUE(testbed->fabric()
                      .SetFault(LinkDirection::LeafToSpine(0, spine), Fault::Share(0.08, Fault::Match::kRoceData))
                      .ok());
    }
    ASSERT_TRUE(Eventually([&] { return PathsKnown(5); })) << Story();
    // A past to compare with: the breaker takes two seconds of it (control/breaker.h).
    ASSERT_TRUE(AfterLooks(*testbed, 3));
    ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_MODE));
  }
  bool AllOffHarm() {
    for (const auto& [flow, slot] : Slots()) {
      const int spine = SpineOfSlot(slot);
      if (spine != full_ && spine != other_) return false;
    }
    return true;
  }
  std::string Story() {
    std::string text;
    for (const char* type : {"path", "move", "return", "breaker"}) {
      for (const Mark& mark : testbed->Events(testbed->origin_ns(), type))
        absl::StrAppendFormat(&text, "\n%.2f s: %s", mark.at_s, mark.text);
    }
    return text;
  }

  int full_ = -1, other_ = -1;
};

TEST_F(SteeringToHarm, TheBreakerEndsMovesThatDoHarm) {
  bool tripped = false;
  for (int attempt = 0; !tripped && attempt < 3; ++attempt) {
    ASSERT_NO_FATAL_FAILURE(SetUpHarm());
    tripped = Eventually([&] { return Status().breaker().tripped(); }, absl::Seconds(30));
    // Where the machine stood still a path looks dead, and its flows go to where harm is before balance can move them.
    if (testbed->PathDeaths(testbed->origin_ns()).empty()) break;
  }
  for (const Mark& mark : testbed->Events(testbed->origin_ns(), "breaker"))
    std::printf("%.2f s: %s\n", mark.at_s, mark.text.c_str());
  ASSERT_TRUE(tripped) << Status().breaker().DebugString() << Story();
  EXPECT_GE(Status().breaker().harmful(), 2u);
  EXPECT_FALSE(Told("breaker", "go back, and balance only observes").empty());
  EXPECT_TRUE(Eventually([&] { return AllOffHarm(); })) << "the moves are undone" << Story();
  EXPECT_TRUE(AfterLooks(*testbed, 3));
  EXPECT_TRUE(AllOffHarm()) << "balance only observes" << Story();
  const auto reply = testbed->agent(0).BreakerReset();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(Status().breaker().tripped());
}

// Observing alone: a collision and a silent cut are in the report, and each item's window can be decided again.
TEST_F(Steering, TheReportListsWhatObservingWouldHaveAvoided) {
  char folder[] = "/tmp/cw-report-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string report_file = absl::StrCat(folder, "/report"), recording = absl::StrCat(folder, "/recording");
  TestbedSpec spec = SmallSpec("observe");
  spec.active_interval = absl::Milliseconds(5);
  spec.adjust = [&](int host, config::Config& config) {
    config.log.report_file = absl::StrCat(report_file, host);
    config.log.observations_file = absl::StrCat(recording, host);
  };
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  const auto [full, other] = StartCollision(4);
  ASSERT_GE(full, 0);
  const auto items = [&](const std::string& kind) {
    std::vector<report::Item> found;
    const auto read = report::ReadFiles(absl::StrCat(report_file, 0));
    if (!read.ok()) return found;
    EXPECT_EQ(read->torn, 0u);
    for (const report::Item& item : read->items) {
      if (item.kind == kind) found.push_back(item);
    }
    return found;
  };
  ASSERT_TRUE(Eventually([&] { return !items("balance").empty(); }, absl::Seconds(40)));
  ASSERT_TRUE(Eventually([&] { return NativePortsAreFolded(); }));
  const LinkDirection link = LinkDirection::SpineToLeaf(full, 1);
  ASSERT_TRUE(testbed->fabric().SetFault(link, Fault::Drop()).ok());
  ASSERT_TRUE(Eventually([&] { return !items("failover").empty(); }));
  Hold(absl::Seconds(1));  // what they stand for is told of
  ASSERT_TRUE(testbed->fabric().ClearFault(link).ok());
  const bool known = Eventually([&] { return items("failover")[0].stall_ms.has_value(); });
  ASSERT_TRUE(known);
  EXPECT_TRUE(Told("path", "delivers probes but no data").empty()) << "they wait for their timers";
  EXPECT_GT(*items("failover")[0].stall_ms, 900);
  EXPECT_EQ(items("failover")[0].job, "greedy");
  EXPECT_FALSE(items("failover")[0].links.empty());
  EXPECT_GT(items("balance")[0].goodput_share.value_or(0), 0.1);

  std::vector<report::Item> wanted = items("balance");
  for (const report::Item& item : items("failover")) wanted.push_back(item);
  auto reader = replay::Reader::Open(absl::StrCat(recording, 0));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::set<size_t> replayed;
  const auto result = replay::Replay(**reader, {}, [&](const replay::ReplayedWindow& window) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].window != static_cast<int64_t>(window.number)) continue;
      EXPECT_TRUE(window.same);
      EXPECT_EQ(wanted[i].recording_unix_ns, (*reader)->head().started_unix_ns);
      replayed.insert(i);
      const auto& moves = window.decided.moves;
      const bool decided = std::any_of(moves.begin(), moves.end(), [&](const control::Move& move) {
        return move.flow.Id().ToString() == wanted[i].flow && move.from == wanted[i].slot;
      });
      EXPECT_TRUE(decided || wanted[i].kind != "balance") << "the window of the decision";
      const auto& paths = window.recorded.seen.pairs[0].paths;
      const bool unusable = std::any_of(paths.begin(), paths.end(), [&](const control::PathObservation& path) {
        return path.slot == wanted[i].slot && !path.usable;
      });
      EXPECT_TRUE(unusable || wanted[i].kind != "failover") << "the path is not usable in the window of its death";
    }
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(replayed.size(), wanted.size());
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cw::lab
