// SPDX-License-Identifier: Apache-2.0
// NICs with clocks of their own on the lab's fabric: their ties to the hosts' hidden clocks, and fleet time from their
// stamps, both judged against the truth that the lab knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kHosts = 4;

class NicsOnFabric : public ::testing::Test {
 protected:
  void Up(bool nics) {
    TestbedSpec spec;
    spec.fabric = {.lab = "nictest", .hosts_per_leaf = kHosts / 2, .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "observe";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.all_hosts = true;
    spec.idle_interval = absl::Milliseconds(20);
    for (int host = 0; host < kHosts; ++host) {
      const auto seed = static_cast<uint32_t>(host + 1);
      spec.clocks.push_back({.offset_ns = host * 200'000'000, .drift_ppm = 30.0 * host - 45, .segment_s = 600, .seed = seed});
      if (!nics) continue;
      spec.nic_clocks.push_back({.clock = {.offset_ns = 5'000'000'000 + host * 1'000'000'000, .drift_ppm = 20 - 15.0 * host, .segment_s = 600, .seed = seed + 100}});
    }
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    for (int host = 0; host < kHosts; ++host) {
      absl::StatusOr<cw_lab_clock> clock = ReadHiddenClock(testbed->fabric(), host);
      ASSERT_TRUE(clock.ok()) << clock.status();
      truth.push_back(*clock);
    }
  }

  v1::ClockReply ClockOf(int host) {
    absl::StatusOr<v1::ClockReply> reply = testbed->agent(host).Clock();
    EXPECT_TRUE(reply.ok()) << "h" << host << ": " << reply.status();
    return reply.ok() ? *reply : v1::ClockReply();
  }

  // Every host is synchronised, and every neighbour's link has stamps of this kind.
  bool Ready(const std::string& stamps) {
    for (int host = 0; host < kHosts; ++host) {
      const v1::ClockReply reply = ClockOf(host);
      if (reply.tracking().state() != v1::ClockTracking::STATE_SYNCHRONISED) return false;
      for (const v1::ClockSource& source : reply.sources().sources()) {
        if (source.stamps() != stamps) return false;
      }
    }
    return true;
  }

  bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(60)) {
    const absl::Time deadline = absl::Now() + limit;
    while (!done()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return true;
  }

  int64_t LocalAt(int host, int64_t true_ns) const {
    return true_ns + HiddenClockError(truth[static_cast<size_t>(host)], static_cast<uint64_t>(true_ns));
  }

  // Fleet time of a host at a true time, by the line that it tells; less true time.
  double FleetAt(const v1::ClockTracking& t, int host, int64_t true_ns) const {
    const int64_t local_ns = LocalAt(host, true_ns);
    const auto since_ns = static_cast<double>(local_ns - t.line_ns());
    return static_cast<double>(local_ns - true_ns + t.line_offset_ns()) + t.rate_ppb() * 1e-9 * since_ns;
  }

  std::string Why() {
    std::string why;
    for (int host = 0; host < kHosts; ++host) absl::StrAppend(&why, ClockOf(host).DebugString(), "\n");
    return why;
  }

  // Errors between any two hosts, sorted; none may be outside the bounds.
  std::vector<double> Judge(int rounds) {
    std::vector<double> errors_ns;
    int outside = 0, unlikely = 0;
    for (int round = 0; round < rounds; ++round) {
      std::vector<v1::ClockTracking> lines;
      for (int host = 0; host < kHosts; ++host) lines.push_back(ClockOf(host).tracking());
      const int64_t at_ns = MonotonicNs();
      for (int i = 0; i < kHosts; ++i) {
        for (int j = 0; j < i; ++j) {
          const auto &a = lines[static_cast<size_t>(i)], &b = lines[static_cast<size_t>(j)];
          const double error_ns = std::abs(FleetAt(a, i, at_ns) - FleetAt(b, j, at_ns));
          outside += error_ns > a.bound_ns() + b.bound_ns();
          unlikely += error_ns > a.error_est_ns() + b.error_est_ns();
          errors_ns.push_back(error_ns);
        }
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_EQ(outside, 0) << Why();
    std::sort(errors_ns.begin(), errors_ns.end());
    std::printf("any pair, %zu samples: p50 %.0f ns, p99 %.0f ns, max %.0f ns, %d outside error_est\n", errors_ns.size(),
                errors_ns[errors_ns.size() / 2], errors_ns[errors_ns.size() * 99 / 100], errors_ns.back(), unlikely);
    return errors_ns;
  }

  std::unique_ptr<Testbed> testbed;
  std::vector<cw_lab_clock> truth;
};

TEST_F(NicsOnFabric, TiesHoldAndFleetTimeRestsOnTheirStamps) {
  Up(true);
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(Eventually([&] { return Ready("hardware"); })) << Why();
  absl::SleepFor(absl::Seconds(8));

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
      const auto offset_ns = static_cast<double>(true_ns + HiddenClockError(*nic, static_cast<uint64_t>(true_ns)) - shown.tie().local_ns());
      const double error_ns = std::abs(offset_ns - static_cast<double>(shown.tie().offset_ns()));
      EXPECT_LE(error_ns, shown.tie().bound_ns() + 2);
      worst_ns = std::max(worst_ns, error_ns);
    }
    std::printf("h%d: tie off by at most %.0f ns\n", host, worst_ns);
    EXPECT_LT(worst_ns, 600) << "ten times what is expected";
  }

  const std::vector<double> errors_ns = Judge(300);
  RecordProperty("any_pair_p99_ns", absl::StrCat(errors_ns[errors_ns.size() * 99 / 100]));
  EXPECT_LT(errors_ns[errors_ns.size() * 99 / 100], 2'000) << "ten times what is expected";
  EXPECT_GT(testbed->CounterSum("nic_stamps"), 1'000u);
  EXPECT_LT(testbed->CounterSum("nic_stamps_missing"), testbed->CounterSum("nic_stamps") / 10);
}

// The same hosts without: what hardware's stamps are to be compared with.
TEST_F(NicsOnFabric, TheSameHostsBySoftware) {
  Up(false);
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(Eventually([&] { return Ready("software"); })) << Why();
  EXPECT_EQ(ClockOf(0).nics(0).source(), "");
  absl::SleepFor(absl::Seconds(9));
  const std::vector<double> errors_ns = Judge(300);
  RecordProperty("any_pair_p99_ns", absl::StrCat(errors_ns[errors_ns.size() * 99 / 100]));
  EXPECT_LT(errors_ns[errors_ns.size() * 99 / 100], 2'000) << "ten times what is expected";
}

}  // namespace
}  // namespace cw::lab
