// SPDX-License-Identifier: Apache-2.0
// Timestamps of the kernel's other clocks, against the same instant's CLOCK_MONOTONIC.
#include "tests/unit/cwclock_rig.h"

namespace cw::publish {
namespace {

class CwClockConvert : public testing::Test {
 protected:
  static constexpr int64_t kOffset = 5 * kSecond;

  // Reads `id` between two readings of CLOCK_MONOTONIC, converts both ways round, and expects the truth in the
  // interval.
  static void ExpectSame(const Handle& clock, clockid_t id, int64_t extra_ns) {
    const int64_t before = ReadKernelClock(CLOCK_MONOTONIC);
    const int64_t stamp = ReadKernelClock(id);
    const int64_t after = ReadKernelClock(CLOCK_MONOTONIC);
    cw_clock_time t;
    ASSERT_EQ(cw_clock_convert(clock.get(), id, stamp, &t), 0) << id;
    EXPECT_LE(t.earliest_ns, after + kOffset);
    EXPECT_GE(t.latest_ns, before + kOffset);
    const int64_t error = t.latest_ns - t.fleet_ns - 1000;
    EXPECT_GE(t.fleet_ns, before + kOffset - error);
    EXPECT_LE(t.fleet_ns, after + kOffset + error);
    EXPECT_LE(error, extra_ns) << "clock " << id;
  }

  TempFolder folder_;
  std::string path_ = folder_ / "clock";
};

TEST_F(CwClockConvert, EveryClockGivesTheSameTime) {
  const auto page = MakePage(path_, GoodLine(kOffset));
  const Handle clock(path_);
  for (int i = 0; i < 100; ++i) {
    // Interrupted reads are wide; far more than a microsecond only if each of four was.
    ExpectSame(clock, CLOCK_MONOTONIC, 2);
    ExpectSame(clock, CLOCK_BOOTTIME, 2);
    ExpectSame(clock, CLOCK_MONOTONIC_RAW, 10 * kMs);
    ExpectSame(clock, CLOCK_REALTIME, 10 * kMs);
  }
}

TEST_F(CwClockConvert, AlsoFromAPageOverRaw) {
  cw_clock_line l = GoodLine();
  l.fleet_ns = l.mono_ns + kOffset;
  l.base_ns = l.raw_ns;
  const auto page = MakePage(path_, l, CLOCK_MONOTONIC_RAW);
  const Handle clock(path_);
  // The host's NTP client may slew MONOTONIC meanwhile; the test's own truth is in terms of MONOTONIC.
  ExpectSame(clock, CLOCK_MONOTONIC, 10 * kMs);
  ExpectSame(clock, CLOCK_BOOTTIME, 10 * kMs);
  ExpectSame(clock, CLOCK_REALTIME, 10 * kMs);
}

TEST_F(CwClockConvert, OldAndFutureStampsHaveAWiderInterval) {
  cw_clock_line l = GoodLine(kOffset);
  l.drift_q32 = 858'994;  // 200 ppm
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  for (const int64_t distance : {-3600 * kSecond, -kSecond, kSecond, 3600 * kSecond}) {
    cw_clock_time t;
    ASSERT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC, l.base_ns + distance, &t), 0);
    EXPECT_EQ(t.fleet_ns, l.fleet_ns + distance);
    EXPECT_NEAR(static_cast<double>(t.latest_ns - t.fleet_ns), 1000 + 200e-6 * static_cast<double>(std::abs(distance)),
                1000);
  }
}

// RAW runs 1 % faster in the page's view than it does: as if MONOTONIC had been slewed since the page's pair was taken.
TEST_F(CwClockConvert, ASlewSinceThePageWasWrittenIsSeen) {
  cw_clock_line l = GoodLine(kOffset);
  l.raw_ns -= 300'000;  // both clocks have since come 0.3 ms apart
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  usleep(20'000);
  const int64_t before = ReadKernelClock(CLOCK_MONOTONIC);
  const int64_t raw = ReadKernelClock(CLOCK_MONOTONIC_RAW);
  const int64_t after = ReadKernelClock(CLOCK_MONOTONIC);
  cw_clock_time t;
  ASSERT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC_RAW, raw, &t), 0);
  EXPECT_LE(t.earliest_ns, after + kOffset);
  EXPECT_GE(t.latest_ns, before + kOffset) << "the present pair counts, not the page's line";
}

TEST_F(CwClockConvert, WhatCannotBeTrueIsRefused) {
  cw_clock_line l = GoodLine();
  l.since_ns = l.base_ns - kSecond;
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  cw_clock_time t;
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC, l.base_ns - kSecond / 2, &t), 0);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC, l.base_ns - 2 * kSecond, &t), CW_CLOCK_ERANGE);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_BOOTTIME, l.base_ns + l.suspend_ns - 2 * kSecond, &t), CW_CLOCK_ERANGE);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_PROCESS_CPUTIME_ID, 5, &t), CW_CLOCK_ECLOCK);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_TAI, 5, &t), CW_CLOCK_ECLOCK);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC, 5, nullptr), CW_CLOCK_EINVALID);

  l.realtime_since_ns = l.base_ns - kSecond / 2;  // it was set half a second ago
  ASSERT_TRUE(page->Write(l).ok());
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_REALTIME, ReadKernelClock(CLOCK_REALTIME), &t), 0);
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_REALTIME, ReadKernelClock(CLOCK_REALTIME) - kSecond, &t),
            CW_CLOCK_ERANGE);
  l.realtime_low_ns += 1'000'000'000'000;  // it was set since the page was written
  l.realtime_high_ns += 1'000'000'000'000;
  ASSERT_TRUE(page->Write(l).ok());
  EXPECT_EQ(cw_clock_convert(clock.get(), CLOCK_REALTIME, ReadKernelClock(CLOCK_REALTIME), &t), CW_CLOCK_ERANGE);
}

}  // namespace
}  // namespace cw::publish
