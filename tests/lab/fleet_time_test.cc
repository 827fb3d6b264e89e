// SPDX-License-Identifier: Apache-2.0
// Fleet time on the lab's fabric: hosts whose clocks are hidden from them, judged against the truth that the lab knows.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/fleet_rig.h"
#include "userspace/lab/host_fault.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kHosts = 6;

class FleetOnFabric : public FleetRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleettest", kHosts);
    // One rate each for the length of the test: no crystal changes its rate by 100 ppm in an instant, and what follows
    // such a jump is not the steady error.
    for (int host = 0; host < kHosts; ++host) {
      spec.clocks.push_back({.offset_ns = host * 200'000'000,
                             .drift_ppm = host % 2 == 0 ? 100.0 - 20 * host : 20.0 * host - 100,
                             .segment_s = 120,
                             .seed = static_cast<uint32_t>(host + 1)});
    }
    Up(spec);
  }

  bool AllSynchronised() {
    std::set<std::string> timelines;
    for (int host = 0; host < kHosts; ++host) {
      const v1::ClockTracking tracking = ClockOf(host).tracking();
      if (!IsSynchronised(tracking)) return false;
      timelines.insert(tracking.timeline());
    }
    return timelines.size() == 1;
  }
};

TEST_F(FleetOnFabric, AnyTwoHostsAgreeAndARestartDisturbsNobody) {
  ASSERT_NE(testbed, nullptr);
  const absl::Time begun = absl::Now();
  ASSERT_TRUE(Eventually([&] { return AllSynchronised(); })) << Why();
  std::printf("synchronised %.1f s after all paths were up\n", absl::ToDoubleSeconds(absl::Now() - begun));
  ASSERT_TRUE(AfterRounds(3));

  const Judged steady = Judge(200);
  ASSERT_GT(steady.errors_ns.size(), 1000u) << Why();
  std::printf("%s\n", steady.Text().c_str());
  RecordProperty("any_pair_p99_ns", absl::StrCat(steady.Quantile(0.99)));
  EXPECT_EQ(steady.outside_bound, 0) << Why();
  EXPECT_LT(steady.Quantile(0.99), 2'000) << "ten times what is expected";

  // Each knows its neighbours and why it uses them.
  for (int host = 0; host < kHosts; ++host) {
    const v1::ClockReply reply = ClockOf(host);
    EXPECT_EQ(reply.sources().sources_size(), kHosts - 1);
    EXPECT_GE(reply.tracking().neighbours_used(), 1u) << Why();
    for (const v1::ClockSource& source : reply.sources().sources()) {
      EXPECT_NE(source.letter(), "x") << "h" << host << " calls " << source.name() << " a false ticker\n" << Why();
    }
    double sum_ns = 0;
    for (const v1::ClockBoundTerm& term : reply.bound().terms()) sum_ns += term.ns();
    EXPECT_NEAR(sum_ns, reply.bound().bound_ns(), 2);
  }

  // One agent ends and starts again: it rejoins the timeline, and the others notice nothing.
  std::map<int, v1::ClockTracking> before;
  for (int host = 0; host < kHosts; ++host) before[host] = ClockOf(host).tracking();
  const int restarted = kHosts - 1;
  ASSERT_TRUE(KillAgent(*testbed, restarted).ok());
  ASSERT_TRUE(testbed->StartAgent(restarted).ok());
  ASSERT_TRUE(Eventually([&] { return IsSynchronised(ClockOf(restarted).tracking()); })) << Why();
  const Judged after = Judge(100);
  std::printf("after a restart: max %.0f ns\n", after.Quantile(1));
  EXPECT_EQ(after.outside_bound, 0) << Why();
  for (int host = 0; host < kHosts; ++host) {
    const v1::ClockTracking now = ClockOf(host).tracking();
    EXPECT_EQ(now.timeline(), before[host].timeline()) << "h" << host;
    if (host == restarted) continue;
    EXPECT_EQ(now.epoch(), before[host].epoch()) << "h" << host;
  }
}

}  // namespace
}  // namespace cw::lab
