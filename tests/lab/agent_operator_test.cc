// SPDX-License-Identifier: Apache-2.0
// What operators ask agents for, on the lab's fabric: drains, why a flow is where it is, recordings, events.
#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/agent_rig.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/host_fault.h"
#include "userspace/replay/replay.h"

namespace cw::lab {
namespace {

// What a host's own flows put on the link from its leaf to a spine, by the switch's count; probes are none of them.
uint64_t DataBytes(Testbed& testbed, int host, int spine) {
  const absl::StatusOr<std::vector<FlowCounters>> flows = testbed.fabric().Flows();
  EXPECT_TRUE(flows.ok()) << flows.status();
  uint64_t bytes = 0;
  if (!flows.ok()) return 0;
  for (const FlowCounters& flow : *flows) {
    const bool up = flow.link.tier == LinkDirection::Tier::kSpine && flow.link.toward == LinkDirection::Toward::kUp;
    if (up && flow.link.spine == spine && !flow.probe && flow.source == testbed.fabric().HostAddr(host))
      bytes += flow.bytes;
  }
  return bytes;
}

TEST_F(AgentOnFabric, ADrainedSpineCarriesNothingOfThisHostUntilItIsGivenBack) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4 && testbed->CounterSum("flows_assigned") >= 4; }));
  ASSERT_TRUE(Eventually([&] { return DataBytes(*testbed, 0, 1) > 0; })) << "nothing to drain";
  v1::DrainRequest drain;
  drain.set_kind(v1::DRAIN_KIND_SPINE);
  drain.set_what("10.1.1.0");
  drain.set_now(true);
  const absl::StatusOr<v1::ActionReply> done = testbed->agent(0).Drain(drain);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->undo(), "undrain 10.1.1.0");
  const auto state = [&] {
    const v1::DrainsReply reply = testbed->agent(0).Drains().value_or(v1::DrainsReply());
    return reply.drains_size() == 1 ? reply.drains(0) : v1::Drain();
  };
  ASSERT_TRUE(Eventually([&] { return state().quiet_s() > 2; })) << state().DebugString();
  const uint64_t before = DataBytes(*testbed, 0, 1);
  // Neither new flows nor a restart of the agent bring anything there.
  auto newer = testbed->NewEmulator(2);
  ASSERT_TRUE(newer.ok()) << newer.status();
  JobSpec second = SteadyTraffic(absl::Microseconds(500));
  second.name = "second";
  ASSERT_TRUE((*newer)->AddJob(second).ok());
  ASSERT_TRUE((*newer)->Start().ok());
  EXPECT_TRUE(Eventually([&] { return state().safe(); }, absl::Seconds(40))) << state().DebugString();
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  ASSERT_TRUE(EachFlowDelivers(*emulator)) << "without an agent";
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 8; }));
  EXPECT_TRUE(Eventually([&] { return state().quiet_s() > 3; })) << state().DebugString();
  EXPECT_EQ(DataBytes(*testbed, 0, 1), before) << "bytes of data over a drained spine, by the switch's own count";
  EXPECT_EQ(state().flows(), 0u);
  const v1::PathsReply drained = PathsOf(0);
  for (const v1::Path& path : drained.pairs(0).paths()) {
    if (path.hops_size() < 2) continue;
    EXPECT_EQ(path.drained(), path.hops(1) == "10.1.1.0") << path.DebugString();
  }
  // The last path is not given away, and what is drained takes no flow by hand.
  drain.set_now(false);
  for (const char* spine : {"10.1.0.0", "10.1.2.0"}) {
    drain.set_what(spine);
    EXPECT_TRUE(testbed->agent(0).Drain(drain).ok());
  }
  drain.set_what("10.1.3.0");
  EXPECT_TRUE(absl::IsFailedPrecondition(testbed->agent(0).Drain(drain).status()));
  v1::UndrainRequest back;
  back.set_all(true);
  ASSERT_TRUE(testbed->agent(0).Undrain(back).ok());
  EXPECT_EQ(testbed->agent(0).Drains().value_or(v1::DrainsReply()).drains_size(), 0);
  v1::SteerSetRequest place;
  place.set_flow(FlowsOf(0)[0].id());
  const v1::PathsReply given_back = PathsOf(0);
  for (const v1::Path& path : given_back.pairs(0).paths()) {
    if (path.assignable() && path.hops_size() > 1 && path.hops(1) == "10.1.1.0") place.set_path(path.slot());
  }
  place.set_force(true);
  EXPECT_TRUE(testbed->agent(0).SteerSet(place).ok());
  EXPECT_TRUE(Eventually([&] { return DataBytes(*testbed, 0, 1) > before; }));
}

// Of one spine, the link to one leaf alone: flows to the other leaf stay on it.
TEST_F(AgentOnFabric, ADrainedLinkIsLeftByTheFlowsThatCrossItAlone) {
  TestbedSpec spec = SmallSpec();
  spec.fabric.leaves = 3;
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  JobSpec job = SteadyTraffic(absl::Milliseconds(1), 8);
  job.pairs = {{0, 1}, {0, 2}};
  StartJob(job);
  constexpr int kSpine = 1;
  const auto crossing = [&](int host) {  // flows of host 0 to this one that are on the spine
    int count = 0;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows)
      count += flow.destination == host && testbed->SpineOf(flow, MonotonicNs() - 300'000'000) == kSpine;
    return count;
  };
  // Not by their first packets, which go before the flows have been placed.
  absl::Time placed = absl::InfiniteFuture();
  ASSERT_TRUE(Eventually([&] {
    if (FlowsOf(0).size() != 16) return false;
    placed = std::min(placed, absl::Now() + absl::Milliseconds(500));
    return absl::Now() > placed && crossing(1) > 0 && crossing(2) > 0;
  }));
  v1::DrainRequest drain;
  drain.set_kind(v1::DRAIN_KIND_LINK);
  drain.set_what(absl::StrCat("10.1.", kSpine, ".3"));  // where the link from the spine to leaf 1 ends
  drain.set_now(true);
  const int stay = crossing(2);
  const absl::StatusOr<v1::ActionReply> done = testbed->agent(0).Drain(drain);
  ASSERT_TRUE(done.ok()) << done.status();
  const auto state = [&] { return testbed->agent(0).Drains().value_or(v1::DrainsReply()).drains(0); };
  EXPECT_TRUE(Eventually([&] { return crossing(1) == 0 && state().flows() == 0; })) << state().DebugString();
  EXPECT_GT(state().flows_moved(), 0u);
  EXPECT_TRUE(Eventually([&] { return state().quiet_s() > 2; })) << state().DebugString();
  EXPECT_EQ(crossing(1), 0);
  EXPECT_EQ(crossing(2), stay) << "they do not cross it";
  v1::UndrainRequest back;
  back.set_all(true);
  ASSERT_TRUE(testbed->agent(0).Undrain(back).ok());
  EXPECT_TRUE(Eventually([&] { return crossing(1) > 0; })) << "they go back where they were";
}

TEST_F(AgentOnFabric, ObserveModeDrainsNothing) {
  TestbedSpec spec = SmallSpec();
  spec.mode = "observe";
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  v1::DrainRequest drain;
  drain.set_kind(v1::DRAIN_KIND_SPINE);
  drain.set_what("10.1.1.0");
  const absl::Status refused = testbed->agent(0).Drain(drain).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(refused.ToString().find("cwctl mode protect"), std::string::npos) << refused;
}

TEST_F(AgentOnFabric, SaysWhyAFlowIsWhereItIs) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4 && testbed->CounterSum("flows_assigned") >= 4; }));
  const v1::Flow flow = FlowsOf(0)[0];
  const auto why = [&](const std::string& what) {
    v1::WhyRequest request;
    request.set_what(what);
    const absl::StatusOr<v1::WhyReply> reply = testbed->agent(0).Why(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(v1::WhyReply());
  };
  EXPECT_TRUE(Eventually([&] {
    const std::string standing = why(flow.id()).rule().standing();
    return standing != "unknown" && standing != "settling";
  })) << why(flow.id()).DebugString();
  v1::WhyReply reply = why(flow.id());
  EXPECT_EQ(reply.placement(), "assigned");
  EXPECT_EQ(reply.path().path().slot(), static_cast<uint32_t>(flow.slot()));
  EXPECT_GE(reply.rule().candidates_size(), 3) << reply.DebugString();
  ASSERT_GE(reply.holds_size(), 1);
  EXPECT_EQ(reply.holds(0).kind(), "mode");
  ASSERT_GE(reply.events_size(), 1) << "that it appeared";
  const std::string path_name = absl::StrCat("h1/", flow.slot());
  const v1::WhyReply path = why(path_name);
  EXPECT_FALSE(path.has_flow());
  EXPECT_NE(std::find(path.path().flows().begin(), path.path().flows().end(), flow.id()), path.path().flows().end());
  const int spine = testbed->fabric().PathOf(0, 1, static_cast<uint16_t>(flow.udp_port())).value_or(-1);
  ASSERT_GE(spine, 0);
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop(Fault::Match::kAll)).ok());
  EXPECT_TRUE(Eventually([&] { return why(flow.id()).placement() == "left_dead_path"; }));
  reply = why(flow.id());
  const auto& events = reply.events();
  EXPECT_TRUE(std::any_of(events.begin(), events.end(), [](const v1::WhyEvent& event) {
    return event.event().type() == "move" && event.ago_s() >= 0 && event.ago_s() < 60;
  })) << reply.DebugString();
  const v1::WhyReply dead = why(path_name);
  EXPECT_EQ(dead.path().path().state(), v1::PATH_STATE_DEAD);
  EXPECT_GE(dead.path().flaps(), 1u);
  EXPECT_GT(dead.path().penalty(), 0);
  ASSERT_GE(dead.holds_size(), 1);
  EXPECT_EQ(dead.holds(0).kind(), "dead");
}

TEST_F(AgentOnFabric, WhatItDecidedIsDecidedAgainFromItsRecording) {
  char folder[] = "/tmp/cw-recording-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const auto file = [&](int host) { return absl::StrCat(folder, "/h", host); };
  ContentionSpec spec;
  spec.testbed.fabric = {.lab = "agenttest", .hosts_per_leaf = 2, .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.active_interval = absl::Milliseconds(5);
  spec.testbed.agent_binary = CWLAB_AGENTD_BINARY;
  spec.testbed.adjust = [&](int host, config::Config& config) { config.log.observations_file = file(host); };
  spec.best_duration = absl::Seconds(6);
  spec.agents_first = absl::ZeroDuration();  // flows keep the ports that collide, so that there is something to decide
  spec.seed = 3;
  const auto run = RunContention(spec);
  ASSERT_TRUE(run.ok()) << run.status();
  uint64_t windows = 0, moves = 0;
  for (int host = 0; host < 2; ++host) {
    auto reader = replay::Reader::Open(file(host));
    ASSERT_TRUE(reader.ok()) << reader.status();
    const auto result = replay::Replay(**reader, {}, [&](const replay::ReplayedWindow& window) {
      EXPECT_TRUE(window.same) << "host " << host << ", window " << window.number;
    });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->end.ok()) << result->end;
    windows += result->windows;
    moves += result->moves_recorded;
  }
  EXPECT_GT(windows, 100u);
  std::printf("%d windows and %d moves decided again\n", static_cast<int>(windows), static_cast<int>(moves));
  std::filesystem::remove_all(folder);
}

// Few are copied at a time; a reader sees no seam.
TEST_F(AgentOnFabric, ReadersOfEventsGetTheLastOnesOrAllOfThem) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  v1::SteerLockRequest lock;
  lock.set_flow(FlowsOf(0)[0].id());
  for (int i = 0; i < 400; ++i) {
    lock.set_lock(i % 2 == 0 ? v1::LOCK_SOFT : v1::LOCK_NONE);
    ASSERT_TRUE(testbed->agent(0).SteerLock(lock).ok());
  }
  const auto numbers = [&](uint32_t last, const std::string& type, uint64_t after = 0) {
    v1::EventsRequest request;
    request.set_last(last);
    request.set_type(type);
    request.set_after_seq(after);
    std::vector<uint64_t> seqs;
    EXPECT_TRUE(testbed->agent(0)
                    .Events(request,
                            [&](const v1::Event& event) {
                              seqs.push_back(event.seq());
                              return true;
                            })
                    .ok());
    return seqs;
  };
  const auto tail = [](const std::vector<uint64_t>& all, size_t count) {
    return std::vector<uint64_t>(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
  };
  const std::vector<uint64_t> steer = numbers(0, "steer");
  ASSERT_GE(steer.size(), 400u);
  EXPECT_EQ(numbers(3, "steer"), tail(steer, 3));
  EXPECT_EQ(numbers(300, "steer"), tail(steer, 300));
  EXPECT_EQ(numbers(0, "steer", steer[steer.size() - 3]), tail(steer, 2));
  EXPECT_TRUE(numbers(5, "no such type").empty());
  // Others are said meanwhile.
  const std::vector<uint64_t> newest = numbers(300, "");
  EXPECT_EQ(newest.size(), 300u);
  EXPECT_EQ(newest.back() - newest.front(), 299u);
  EXPECT_GE(newest.back(), steer.back());
  const std::vector<uint64_t> all = numbers(0, "");
  EXPECT_EQ(all.front(), 1u);
  EXPECT_EQ(all.back(), all.size());
}

}  // namespace
}  // namespace cw::lab
