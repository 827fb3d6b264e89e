// SPDX-License-Identifier: Apache-2.0
// NICs with clocks of their own on the lab's fabric: their ties to the hosts' hidden clocks, and fleet time from their
// stamps, both judged against the truth that the lab knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/fleet_rig.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kHosts = 4;

class NicsOnFabric : public FleetRig {
 protected:
  void Start(bool nics) {
    TestbedSpec spec = Spec("nictest", kHosts);
    for (int host = 0; host < kHosts; ++host) {
      const auto seed = static_cast<uint32_t>(host + 1);
      spec.clocks.push_back(
          {.offset_ns = host * 200'000'000, .drift_ppm = 30.0 * host - 45, .segment_s = 600, .seed = seed});
      if (!nics) continue;
      spec.nic_clocks.push_back({.clock = {.offset_ns = 5'000'000'000 + host * 1'000'000'000,
                                           .drift_ppm = 20 - 15.0 * host,
                                           .segment_s = 600,
                                           .seed = seed + 100}});
    }
    Up(spec);
  }

  // Every host is synchronised, and every neighbour's link has stamps of this kind.
  bool Ready(const std::string& stamps) {
    for (int host = 0; host < kHosts; ++host) {
      const v1::ClockReply reply = ClockOf(host);
      if (!IsSynchronised(reply.tracking())) return false;
      for (const v1::ClockSource& source : reply.sources().sources()) {
        if (source.stamps() != stamps) return false;
      }
    }
    return true;
  }

  void ExpectAgreement() {
    const Judged judged = Judge(300);
    std::printf("%s\n", judged.Text().c_str());
    ASSERT_GT(judged.errors_ns.size(), 1000u) << Why();
    EXPECT_EQ(judged.outside_bound, 0) << Why();
    RecordProperty("any_pair_p99_ns", absl::StrCat(judged.Quantile(0.99)));
    EXPECT_LT(judged.Quantile(0.99), 2'000) << "ten times what is expected";
  }
};

TEST_F(NicsOnFabric, TiesHoldAndFleetTimeRestsOnTheirStamps) {
  Start(true);
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(Eventually([&] { return Ready("hardware"); })) << Why();
  ASSERT_TRUE(AfterRounds(8));

  for (int host = 0; host < kHosts; ++host) {
    absl::StatusOr<cw_lab_clock> nic = ReadNicClock(testbed->fabric(), host);
    ASSERT_TRUE(nic.ok()) << nic.status();
    double worst_ns = 0;
    for (int i = 0; i < 50; ++i, absl::SleepFor(absl::Milliseconds(20))) {
      const v1::ClockReply reply = ClockOf(host);
      ASSERT_EQ(reply.nics_size(), 1);
      const v1::ClockNic& shown = reply.nics(0);
      EXPECT_EQ(shown.source(), "simulated");
      EXPECT_TRUE(shown.stamps() && shown.converted()) << shown.DebugString();
      EXPECT_EQ(shown.tie().state(), v1::PeerClock::STATE_SYNCED);
      // The true time at which this host's local clock showed the reply's.
      int64_t true_ns = shown.tie().local_ns();
      for (int turn = 0; turn < 4; ++turn) true_ns -= LocalAt(host, true_ns) - shown.tie().local_ns();
      const auto offset_ns = static_cast<double>(true_ns + HiddenClockError(*nic, static_cast<uint64_t>(true_ns)) -
                                                 shown.tie().local_ns());
      const double error_ns = std::abs(offset_ns - static_cast<double>(shown.tie().offset_ns()));
      EXPECT_LE(error_ns, shown.tie().bound_ns() + 2);
      worst_ns = std::max(worst_ns, error_ns);
    }
    std::printf("h%d: tie off by at most %.0f ns\n", host, worst_ns);
    EXPECT_LT(worst_ns, 600) << "ten times what is expected";
  }

  ExpectAgreement();
  EXPECT_GT(testbed->CounterSum("nic_stamps"), 1'000u);
  EXPECT_LT(testbed->CounterSum("nic_stamps_missing"), testbed->CounterSum("nic_stamps") / 10);
}

// The same hosts without: what hardware's stamps are to be compared with.
TEST_F(NicsOnFabric, TheSameHostsBySoftware) {
  Start(false);
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(Eventually([&] { return Ready("software"); })) << Why();
  EXPECT_EQ(ClockOf(0).nics(0).source(), "");
  ASSERT_TRUE(AfterRounds(8));
  ExpectAgreement();
}

}  // namespace
}  // namespace cw::lab
