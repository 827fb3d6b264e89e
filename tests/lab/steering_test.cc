// SPDX-License-Identifier: Apache-2.0
// What may be done and what is undone: single capabilities, the slow return, the breaker, the report of what was only
// observed. Real agents on the lab's fabric.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/testbed.h"
#include "userspace/replay/replay.h"
#include "userspace/report/summary.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

TestbedSpec SmallSpec(const std::string& mode) {
  TestbedSpec spec;
  spec.fabric = {.lab = "steertest", .link_mbps = 200, .ecmp_seed = 1};
  spec.mode = mode;
  spec.agent_binary = CWLAB_AGENTD_BINARY;
  return spec;
}

JobSpec Paced(int qps) {
  JobSpec job;
  job.name = "traffic";
  job.pairs = {{0, 1}};
  job.qps_per_pair = qps;
  job.message_bytes = 64 << 10;
  job.duration = absl::Hours(1);
  job.packet_interval = absl::Milliseconds(2);
  job.path_mtu = 1024;
  job.rate.reacts = false;
  return job;
}

// As fast as links and marks let it.
JobSpec Greedy(int qps, double link_mbps) {
  JobSpec job = Paced(qps);
  job.name = "greedy";
  job.message_bytes = 1 << 20;
  job.packet_interval = absl::ZeroDuration();
  job.path_mtu = 4096;
  job.rate = RateConfig::ForLine(link_mbps * 1e6);
  return job;
}

class Steering : public ::testing::Test {
 protected:
  void Up(const TestbedSpec& spec) {
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
  }
  void Start(const JobSpec& job, uint64_t seed = 1) {
    auto made = testbed->NewEmulator(seed);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }
  // Flows on their native ports: `many` on one spine, one on another, and two spines that carry nothing. Returns the
  // two that carry something.
  std::pair<int, int> StartCollision(int many) {
    const Fabric& fabric = testbed->fabric();
    for (uint64_t seed = 1; seed < 5000; ++seed) {
      auto made = testbed->NewEmulator(seed);
      if (!made.ok() || !(*made)->AddJob(Greedy(many + 1, fabric.spec().link_mbps)).ok()) break;
      std::map<int, int> count;
      for (const FlowReport& flow : (*made)->TakeSnapshot().flows) {
        ++count[fabric.PathOf(flow.source, flow.destination, flow.source_port).value_or(-1)];
      }
      if (count.size() != 2 || count.begin()->first < 0) continue;
      const auto full =
          std::max_element(count.begin(), count.end(), [](auto& a, auto& b) { return a.second < b.second; });
      if (full->second != many) continue;
      emulator = std::move(*made);
      EXPECT_TRUE(emulator->Start().ok());
      const auto other = full == count.begin() ? std::next(full) : count.begin();
      return {full->first, other->first};
    }
    ADD_FAILURE() << "no seed collides so";
    return {-1, -1};
  }
  // A native port that is probed by itself is no path of a recording, until its trace shows which it takes.
  bool NativePortsAreFolded() {
    const auto reply = testbed->agent(0).Paths({});
    if (!reply.ok() || reply->pairs().empty()) return false;
    const auto& paths = reply->pairs(0).paths();
    return std::none_of(paths.begin(), paths.end(), [](const v1::Path& path) { return path.native(); });
  }
  v1::StatusReply Status() { return testbed->agent(0).Status().value_or(v1::StatusReply()); }
  std::map<std::string, int> Slots() {
    std::map<std::string, int> slots;
    const v1::QpsReply reply = testbed->agent(0).Qps({}).value_or(v1::QpsReply());
    for (const v1::Flow& flow : reply.flows()) slots[flow.id()] = flow.slot();
    return slots;
  }
  void Allow(const std::string& capability, v1::Allow allow) {
    v1::SetModeRequest request;
    request.add_allowed()->set_capability(capability);
    request.mutable_allowed(0)->set_allow(allow);
    const auto reply = testbed->agent(0).SetMode(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  std::vector<Mark> Told(const std::string& type, const std::string& text) {
    std::vector<Mark> marks;
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), type)) {
      if (absl::StrContains(mark.text, text)) marks.push_back(mark);
    }
    return marks;
  }
  bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + limit;
    while (!done()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return true;
  }
  int SpineOfSlot(int slot) {
    const v1::PathsReply reply = testbed->agent(0).Paths({}).value_or(v1::PathsReply());
    for (const v1::Path& path : reply.pairs(0).paths()) {
      if (static_cast<int>(path.slot()) == slot)
        return testbed->fabric().PathOf(0, 1, static_cast<uint16_t>(path.udp_port())).value_or(-1);
    }
    return -1;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(Steering, FailoverAloneIsObservedThenActs) {
  Up(SmallSpec("protect"));
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(Start(Paced(8)));
  ASSERT_TRUE(Eventually([&] { return Slots().size() == 8; }));
  ASSERT_NO_FATAL_FAILURE(Allow("failover", v1::ALLOW_OBSERVE));
  EXPECT_EQ(Status().allowed(0).allow(), v1::ALLOW_OBSERVE);
  EXPECT_EQ(Status().allowed(0).by_mode(), v1::ALLOW_ACT);
  absl::SleepFor(absl::Seconds(1));
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

TEST_F(Steering, FlowsComeBackToARecoveredPathOneThenTwo) {
  Up(SmallSpec("protect"));
  ASSERT_NE(testbed, nullptr);
  absl::SleepFor(absl::Seconds(2));  // flows are new from now on, and assigned
  ASSERT_NO_FATAL_FAILURE(Start(Paced(16)));
  ASSERT_TRUE(Eventually([&] { return Slots().size() == 16 && testbed->CounterSum("flows_assigned") >= 16; }));
  absl::SleepFor(absl::Seconds(1));
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
TEST_F(Steering, TheBreakerEndsMovesThatDoHarm) {
  TestbedSpec spec = SmallSpec("optimize");
  spec.active_interval = absl::Milliseconds(5);
  spec.adjust = [](int, config::Config& config) { config.steering.allow.place = config::AllowSetting::kObserve; };
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_OBSERVE));
  const auto [full, other] = StartCollision(4);
  ASSERT_GE(full, 0);
  for (int spine = 0; spine < 4; ++spine) {
    if (spine == full || spine == other) continue;
    ASSERT_TRUE(testbed->fabric()
                    .SetFault(LinkDirection::LeafToSpine(0, spine), Fault::Share(0.08, Fault::Match::kRoceData))
                    .ok());
  }
  absl::SleepFor(absl::Seconds(4));  // a past to compare with
  ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_MODE));
  const bool tripped = Eventually([&] { return Status().breaker().tripped(); }, absl::Seconds(60));
  for (const Mark& mark : testbed->Events(testbed->origin_ns(), "breaker"))
    std::printf("%.2f s: %s\n", mark.at_s, mark.text.c_str());
  ASSERT_TRUE(tripped) << Status().breaker().DebugString();
  EXPECT_GE(Status().breaker().harmful(), 2u);
  EXPECT_FALSE(Told("breaker", "go back, and balance only observes").empty());
  const auto all_off = [&] {
    for (const auto& [flow, slot] : Slots()) {
      const int spine = SpineOfSlot(slot);
      if (spine != full && spine != other) return false;
    }
    return true;
  };
  EXPECT_TRUE(Eventually(all_off)) << "the moves are undone";
  absl::SleepFor(absl::Seconds(3));
  EXPECT_TRUE(all_off()) << "balance only observes";
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
  absl::SleepFor(absl::Seconds(1));
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
