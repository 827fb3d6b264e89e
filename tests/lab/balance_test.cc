// SPDX-License-Identifier: Apache-2.0
// Moves for balance: what is looked at just before, what they wait for, bursts, and flows that are locked. Real agents
// on the lab's fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/lab/steering_rig.h"

namespace cw::lab {
namespace {

class Balance : public Steering {
 protected:
  // Flows keep their native ports until they are moved for balance.
  static TestbedSpec Spec(int64_t discovery_pps = 2000) {
    TestbedSpec spec = SmallSpec("optimize");
    spec.active_interval = absl::Milliseconds(5);
    spec.adjust = [=](int, config::Config& config) {
      config.steering.allow.place = config::AllowSetting::kObserve;
      config.probe.discovery_pps = discovery_pps;
    };
    return spec;
  }
  std::vector<v1::Event> EventsOf(const std::string& type) {
    std::vector<v1::Event> events;
    v1::EventsRequest request;
    request.set_type(type);
    (void)testbed->agent(0).Events(request, [&](const v1::Event& event) {
      events.push_back(event);
      return true;
    });
    return events;
  }
  static std::string Get(const v1::Event& event, const std::string& name) {
    for (const v1::Evidence& evidence : event.evidence()) {
      if (evidence.name() == name) return evidence.value();
    }
    return "";
  }
  // Flows of host 0 on each spine, as the agent has them.
  std::map<int, int> PerSpine() {
    std::map<int, int> count;
    for (const auto& [flow, slot] : Slots()) ++count[SpineOfSlot(slot)];
    return count;
  }
  int Fullest() {
    int most = 0;
    for (const auto& [spine, flows] : PerSpine()) most = std::max(most, flows);
    return most;
  }
  // By the emulator: where data went lately.
  std::set<int> SpinesInUse() {
    std::set<int> spines;
    const int64_t since_ns = MonotonicNs() - 1'000'000'000;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) spines.insert(testbed->SpineOf(flow, since_ns));
    return spines;
  }
  // Of each path, within the last second.
  bool DelaysKnown() {
    const auto reply = testbed->agent(0).Paths({});
    if (!reply.ok() || reply->pairs().empty()) return false;
    const auto& paths = reply->pairs(0).paths();
    return std::all_of(paths.begin(), paths.end(), [](const v1::Path& path) {
      return path.windows_size() > 0 && path.windows(0).forward().samples() > 0;
    });
  }
  size_t Moves() { return Told("decision", "moving queue pair").size(); }
  void PrintDecisions() {
    for (const v1::Event& event : EventsOf("decision")) {
      std::printf("%s (last look: %s; %s us by %s probes, path %s %s us by %s)\n", event.text().c_str(),
                  Get(event, "fresh_delays").c_str(), Get(event, "fresh_target_queue_us").c_str(),
                  Get(event, "fresh_target_probes").c_str(), Get(event, "other_path").c_str(),
                  Get(event, "fresh_other_queue_us").c_str(), Get(event, "fresh_other_probes").c_str());
    }
  }
};

TEST_F(Balance, AMoveTellsTheFreshDelaysOfBothCandidates) {
  Up(Spec());
  ASSERT_NE(testbed, nullptr);
  const absl::Time up = absl::Now();
  ASSERT_TRUE(Eventually([&] { return Status().hashing() == v1::FABRIC_HASHING_PORTS; }));
  std::printf("ports were seen to choose paths %.0f ms after all paths were up\n",
              absl::ToDoubleMilliseconds(absl::Now() - up));
  ASSERT_TRUE(Eventually([&] { return DelaysKnown(); })) << "the clocks of the pair are not known yet";
  const auto [full, other] = StartCollision(4);
  ASSERT_GE(full, 0);
  std::optional<v1::Event> told;
  const bool found = Eventually(
      [&] {
        for (const v1::Event& event : EventsOf("decision")) {
          if (Get(event, "fresh_delays") == "of both candidates") told = event;
        }
        return told.has_value();
      },
      absl::Seconds(60));
  PrintDecisions();
  ASSERT_TRUE(found) << EventsOf("decision").size() << " decisions";
  std::printf("%s\n", told->DebugString().c_str());
  for (const char* which : {"target", "other"}) {
    int probes = 0;
    double queue_us = -1;
    EXPECT_TRUE(absl::SimpleAtoi(Get(*told, absl::StrCat("fresh_", which, "_probes")), &probes));
    EXPECT_TRUE(absl::SimpleAtod(Get(*told, absl::StrCat("fresh_", which, "_queue_us")), &queue_us));
    EXPECT_GT(probes, 0);
    EXPECT_LE(probes, 16) << "a few, not a window of them";
    EXPECT_GE(queue_us, 0);
  }
  EXPECT_NE(Get(*told, "other_path"), std::to_string(told->to_slot()));
  EXPECT_TRUE(Eventually([&] { return Fullest() <= 2; }, absl::Seconds(60))) << "five flows, four spines";
}

// At ten traces a second, as switches are asked outside of labs.
TEST_F(Balance, NothingMovesBeforeThePortsWereSeenToChoosePaths) {
  Up(Spec(10));
  ASSERT_NE(testbed, nullptr);
  ASSERT_EQ(Status().hashing(), v1::FABRIC_HASHING_UNKNOWN) << "the table alone says nothing of it";
  EXPECT_TRUE(Status().moves_frozen());
  EXPECT_THAT(Status().frozen_reason(), testing::HasSubstr("whether ports choose the path"));
  const auto [full, other] = StartCollision(4);
  ASSERT_GE(full, 0);
  const absl::Time began = absl::Now();
  // Moves are read first: what was decided by then was decided while nothing was known.
  for (size_t moves = 0; absl::Now() < began + absl::Seconds(60); absl::SleepFor(absl::Milliseconds(20))) {
    moves = Moves();
    if (Status().hashing() != v1::FABRIC_HASHING_UNKNOWN) break;
    ASSERT_EQ(moves, 0u) << "after " << absl::Now() - began;
  }
  const absl::Duration unknown = absl::Now() - began;
  std::printf("ports were seen to choose paths %.2f s after the flows began\n", absl::ToDoubleSeconds(unknown));
  ASSERT_EQ(Status().hashing(), v1::FABRIC_HASHING_PORTS);
  EXPECT_GT(unknown, absl::Seconds(1)) << "too short to show that flows which collide waited";
  EXPECT_TRUE(Eventually([&] { return Moves() > 0; }, absl::Seconds(60)));
  EXPECT_FALSE(Status().moves_frozen());
}

// Four flows on one spine, which all send for one second out of 1.3 at the same time.
TEST_F(Balance, CollidingBurstsAreSpread) {
  Up(Spec());
  ASSERT_NE(testbed, nullptr);
  JobSpec job = Greedy(4, testbed->fabric().spec().link_mbps);
  job.message_bytes = 64 << 10;
  job.burst = absl::Seconds(1);
  job.burst_period = absl::Milliseconds(1300);
  const Spines spines = StartWhere(
      {job}, [](const Spines& s) { return std::count(s.begin(), s.end(), s[0]) == static_cast<int>(s.size()); });
  ASSERT_FALSE(spines.empty());
  const bool spread = Eventually([&] { return SpinesInUse().size() >= 3 && Fullest() <= 2; }, absl::Seconds(60));
  PrintDecisions();
  EXPECT_TRUE(spread) << "four flows, four spines, " << SpinesInUse().size() << " in use";
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

// Two flows on one spine of which one rests while the other sends: each has the link for itself, and a move gains
// nothing. A flow that marks its own link may try another one once (contention.h).
TEST_F(Balance, BurstsThatDoNotOverlapAreNotChased) {
  Up(Spec());
  ASSERT_NE(testbed, nullptr);
  JobSpec first = Greedy(1, testbed->fabric().spec().link_mbps);
  first.message_bytes = 64 << 10;
  first.burst = absl::Milliseconds(300);
  first.burst_period = absl::Milliseconds(1000);
  JobSpec second = first;
  second.name = "other";
  second.start_after = absl::Milliseconds(500);
  const Spines spines = StartWhere({first, second}, [](const Spines& s) { return s[0] == s[1]; });
  ASSERT_FALSE(spines.empty());
  Hold(12 * first.burst_period);
  PrintDecisions();
  EXPECT_LE(Moves(), 4u) << "of two flows in twelve bursts each";
}

TEST_F(Balance, ALockedFlowStaysUntilItsPathDies) {
  Up(Spec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_OBSERVE));
  const auto [full, other] = StartCollision(4);
  ASSERT_GE(full, 0);
  std::string locked;
  const auto find = [&] {
    for (const auto& [flow, slot] : Slots()) {
      if (SpineOfSlot(slot) == full) locked = flow;
    }
    return Slots().size() == 5 && !locked.empty();
  };
  ASSERT_TRUE(Eventually(find));
  v1::SteerLockRequest lock;
  lock.set_flow(locked);
  lock.set_lock(v1::LOCK_SOFT);
  const auto reply = testbed->agent(0).SteerLock(lock);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_NO_FATAL_FAILURE(Allow("balance", v1::ALLOW_MODE));
  EXPECT_TRUE(Eventually([&] { return Fullest() <= 2; }, absl::Seconds(60))) << "the others move";
  EXPECT_TRUE(AfterLooks(*testbed, 3));
  EXPECT_EQ(SpineOfSlot(Slots()[locked]), full);
  for (const v1::Event& event : EventsOf("decision")) {
    EXPECT_FALSE(event.flow() == locked && !event.dry()) << event.text();
  }
  const LinkDirection link = LinkDirection::SpineToLeaf(full, 1);
  ASSERT_TRUE(testbed->fabric().SetFault(link, Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] { return SpineOfSlot(Slots()[locked]) != full; })) << "a dead path is left all the same";
  ASSERT_TRUE(testbed->fabric().ClearFault(link).ok());

  // Locked hard it does not even leave that.
  lock.set_lock(v1::LOCK_HARD);
  ASSERT_TRUE(testbed->agent(0).SteerLock(lock).ok());
  const int now = SpineOfSlot(Slots()[locked]);
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(now, 1), Fault::Drop()).ok());
  const auto others_left = [&] {
    for (const auto& [flow, slot] : Slots()) {
      if (flow != locked && SpineOfSlot(slot) == now) return false;
    }
    return true;
  };
  EXPECT_TRUE(Eventually(others_left));
  EXPECT_TRUE(AfterLooks(*testbed, 1));
  EXPECT_EQ(SpineOfSlot(Slots()[locked]), now);
}

}  // namespace
}  // namespace cw::lab
