// SPDX-License-Identifier: Apache-2.0
//
// Two hosts behind two leaves and four spines, with real agents, and flows on native ports that collide as wanted: what
// the tests of steering share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

namespace v1 = api::v1;

inline TestbedSpec SmallSpec(const std::string& mode) {
  TestbedSpec spec;
  spec.fabric = {.lab = "steertest", .link_mbps = 200, .ecmp_seed = 1};
  spec.mode = mode;
  spec.agent_binary = CWLAB_AGENTD_BINARY;
  return spec;
}

inline JobSpec Paced(int qps) { return SteadyTraffic(absl::Milliseconds(2), qps); }

// As fast as links and marks let it.
inline JobSpec Greedy(int qps, double link_mbps) {
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
  using Spines = std::vector<int>;  // of each flow, in the order of the jobs
  // Starts the jobs with the first seed whose native ports take spines as wanted; returns them.
  Spines StartWhere(const std::vector<JobSpec>& jobs, const std::function<bool(const Spines&)>& wanted) {
    const Fabric& fabric = testbed->fabric();
    for (uint64_t seed = 1; seed < 5000; ++seed) {
      auto made = testbed->NewEmulator(seed);
      if (!made.ok()) break;
      for (const JobSpec& job : jobs) EXPECT_TRUE((*made)->AddJob(job).ok());
      Spines spines;
      for (const FlowReport& flow : (*made)->TakeSnapshot().flows)
        spines.push_back(fabric.PathOf(flow.source, flow.destination, flow.source_port).value_or(-1));
      if (spines.empty() || std::count(spines.begin(), spines.end(), -1) > 0 || !wanted(spines)) continue;
      emulator = std::move(*made);
      EXPECT_TRUE(emulator->Start().ok());
      return spines;
    }
    ADD_FAILURE() << "no seed collides so";
    return {};
  }
  // Flows on their native ports: `many` on one spine, one on another, and two spines that carry nothing. Returns the
  // two that carry something.
  std::pair<int, int> StartCollision(int many) {
    const auto most = [](const Spines& spines) {
      return *std::max_element(spines.begin(), spines.end(), [&](int a, int b) {
        return std::count(spines.begin(), spines.end(), a) < std::count(spines.begin(), spines.end(), b);
      });
    };
    const Spines spines = StartWhere({Greedy(many + 1, testbed->fabric().spec().link_mbps)},
                                     [&](const Spines& s) { return std::count(s.begin(), s.end(), most(s)) == many; });
    if (spines.empty()) return {-1, -1};
    const int full = most(spines);
    return {full, *std::find_if(spines.begin(), spines.end(), [&](int spine) { return spine != full; })};
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
  // The path is known of each of so many flows, and none stands for a port of its own any more, also where flows are
  // told, which is read later.
  bool PathsKnown(size_t count) {
    const auto slots = Slots();
    return slots.size() == count && NativePortsAreFolded() &&
           std::all_of(slots.begin(), slots.end(), [&](const auto& entry) { return SpineOfSlot(entry.second) >= 0; });
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

}  // namespace cw::lab
