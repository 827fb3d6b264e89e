// SPDX-License-Identifier: Apache-2.0
// The truth between two virtual machines, and peers held against it, on clocks that are known because they are made up.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/clock_vm_peers.h"
#include "tests/bench/clock_vm_truth.h"

namespace cw::bench {
namespace {

using vm::ClockRecord;

constexpr int64_t kDistance = 38'000'000;                // machine 1's counter − machine 0's
constexpr int64_t kEpochNs = 1'790'000'000'000'000'000;  // some time since 1970
constexpr double kTicksPerNs = 2.6;

// By the common counter: machine 1's clocks run 30 ppm faster, its CLOCK_REALTIME is 2 ms ahead at counter 0 and its
// fleet time 500 ns.
int64_t TrueNs(int64_t tsc) { return static_cast<int64_t>(static_cast<double>(tsc) / kTicksPerNs); }
int64_t RealtimeNs(int machine, int64_t tsc) {
  if (machine == 0) return kEpochNs + TrueNs(tsc);
  return kEpochNs + 2'000'000 + TrueNs(tsc) + TrueNs(tsc) * 30 / 1'000'000;
}
double DifferenceNs(int64_t tsc) { return 2e6 + static_cast<double>(TrueNs(tsc)) * 30e-6; }

std::vector<ClockRecord> Readings(int machine, int64_t first_tsc, int count) {
  std::vector<ClockRecord> records;
  for (int i = 0; i < count; ++i) {
    const int64_t tsc = first_tsc + i * int64_t{26'000'000};  // 10 ms
    const int64_t own = machine == 0 ? tsc - kDistance : tsc;
    ClockRecord record{.monotonic = {own, 150, RealtimeNs(machine, tsc) - kEpochNs},
                       .realtime = {own, 150, RealtimeNs(machine, tsc)},
                       .epoch = 1,
                       .timeline = 7};
    record.fleet_ns = TrueNs(tsc) + 500 * machine;
    record.error_est_ns = 300;
    record.bound_ns = 1000 + machine;
    records.push_back(record);
  }
  return records;
}

VmTruth Truth() { return VmTruth({Readings(0, 1'000'000, 100), Readings(1, 5'000'000, 100)}, kDistance, 1000); }

TEST(ClockVmTruth, TheFastestRoundTripTellsTheDistance) {
  auto distance = ParseCounterDistance("260 38000100\n182 38000000\n900 37999600\n");
  ASSERT_TRUE(distance.ok());
  EXPECT_EQ(distance->ticks, 38'000'000);
  EXPECT_EQ(distance->error, 91);
  EXPECT_EQ(distance->spread, 500);
  EXPECT_FALSE(ParseCounterDistance("no shared page").ok());
}

TEST(ClockVmTruth, FleetTimesAreComparedAtOneInstant) {
  const VmTruth truth = Truth();
  const auto differences = truth.Fleet();
  ASSERT_GE(differences.size(), 98u);
  for (const FleetDifference& difference : differences) {
    EXPECT_NEAR(difference.ns, 500, 3);
    EXPECT_EQ(difference.error_est_ns, 600);
    EXPECT_EQ(difference.bound_ns[0], 1000);
    EXPECT_EQ(difference.bound_ns[1], 1001);
  }
  EXPECT_NEAR(truth.RateDifferencePpm(), 30, 0.1);
  EXPECT_NEAR(truth.NsPerTick(), 1 / kTicksPerNs, 1e-6);
}

TEST(ClockVmTruth, AWrongDistanceOfCountersIsAnErrorOfTheTruth) {
  const VmTruth truth({Readings(0, 1'000'000, 100), Readings(1, 5'000'000, 100)}, kDistance + 2600, 1000);
  for (const FleetDifference& difference : truth.Fleet()) EXPECT_NEAR(difference.ns, 1500, 3);
}

TEST(ClockVmTruth, NothingIsSaidOfStepsOrForeignTimelines) {
  auto theirs = Readings(0, 1'000'000, 100), ours = Readings(1, 5'000'000, 100);
  for (size_t i = 50; i < 100; ++i) theirs[i].epoch = 2;
  ours[10].timeline = 8;
  ours[20].error = -9;
  const size_t whole = Truth().Fleet().size();
  const VmTruth truth({theirs, ours}, kDistance, 1000);
  EXPECT_EQ(truth.Fleet().size(), whole - 3);
  EXPECT_EQ(truth.Refused(), 2u);
}

TEST(ClockVmTruth, SlowReadingsOfAClockAreLeftOut) {
  auto theirs = Readings(0, 1'000'000, 100), ours = Readings(1, 5'000'000, 100);
  ours[30].realtime.gap = 50'000'000;
  ours[30].realtime.ns += 9'000'000;
  const VmTruth truth({theirs, ours}, kDistance, 1000);
  auto difference = truth.RealtimeDifferenceNs(ours[30].realtime.tsc);
  ASSERT_TRUE(difference.has_value());
  EXPECT_NEAR(*difference, DifferenceNs(ours[30].realtime.tsc), 3);
  EXPECT_FALSE(truth.RealtimeDifferenceNs(0).has_value());
}

TEST(ClockVmPeers, ChronysOffsetIsHeldAgainstTheTruthOfItsMoment) {
  const int64_t tsc = 900'000'000;
  // chronyd says what must be added to its clock; here it is wrong by 400 ns.
  const double offset_s = -(DifferenceNs(tsc) + 400) * 1e-9;
  const std::string tracking = absl::StrFormat(
      "0A000064,10.0.0.100,2,1790000000.000000000,%.9f,0.0,0.0,0.0,0.0,0.0,0.000200000,0.000010000,0.0,Normal",
      offset_s);
  const std::string polled =
      absl::StrCat("@ 1 2\r\n506 Cannot talk to daemon,\r\n@ ", tsc - 1000, " ", tsc + 1000, "\r\n", tracking, "\r\n");
  const VmPeerReadings readings = CompareChrony(polled, Truth());
  ASSERT_EQ(readings.error_ns.size(), 1u);
  EXPECT_NEAR(readings.error_ns[0], 400, 4);
  EXPECT_NEAR(readings.bound_ns[0], 110'000, 1);
}

TEST(ClockVmPeers, Ptp4lsOffsetIsHeldAgainstTheTruthOfItsSyncMessage) {
  const int64_t tsc = 700'000'000;
  const auto answer = [&](const char* present) {
    return absl::StrFormat(
        "@ 1 2\r\nsending: GET TIME_STATUS_NP\r\n\tmaster_offset %d\r\n\tingress_time %d\r\n\tgmPresent %s\r\n"
        "\tgmIdentity 02c0.fe.1\r\n",
        static_cast<int64_t>(DifferenceNs(tsc)) - 900, RealtimeNs(1, tsc), present);
  };
  EXPECT_TRUE(ComparePtp4l(answer("false"), Truth()).error_ns.empty());
  // The same Sync message told twice is one reading.
  const VmPeerReadings readings = ComparePtp4l(answer("true") + answer("true"), Truth());
  ASSERT_EQ(readings.error_ns.size(), 1u);
  EXPECT_NEAR(readings.error_ns[0], -900, 4);
}

}  // namespace
}  // namespace cw::bench
