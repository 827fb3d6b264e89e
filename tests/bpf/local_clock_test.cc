// SPDX-License-Identifier: Apache-2.0
// Local time in the programs: the line of cw_local_clock, evaluated as userspace does.
#include <gtest/gtest.h>

#include <cstdint>

#include "bpf/clock.h"
#include "maps/local_clock.h"
#include "tests/bpf/prog_rig.h"
#include "tests/unit/time_units.h"

namespace cw::test {
namespace {

ProgRig::Options Hidden(bool on) {
  ProgRig::Options options;
  options.lab_clock = on;
  return options;
}

class LocalClock : public ::testing::TestWithParam<bool> {
 protected:
  LocalClock() : rig_(Hidden(GetParam())) {
    rig_.ctl().sample_level_rx = 0;
    if (!GetParam()) return;
    hidden_.segments = 1;
    hidden_.start_ns[0] = 1;
    hidden_.base_ns[0] = 777 * kSecond;
    hidden_.drift_ppb[0] = -90'000;
    rig_.SetLabClock(hidden_);
  }
  int64_t HiddenNs(uint64_t t) const { return static_cast<int64_t>(cw_lab_clock_at(&hidden_, t) - t); }

  // A stamp of the programs lies between what userspace makes of the times before and after, whichever copy holds.
  void ExpectLine(const cw_local_line& line) {
    for (uint64_t generation : {7, 8}) {
      cw_local_clock clock{};
      clock.generation = generation;
      clock.copy[generation & 1] = line;
      clock.copy[~generation & 1].ahead_ns = -999 * kSecond;
      rig_.SetLocalClock(clock);
      cw_local_line held{};
      cw_local_get(&clock, &held);
      const uint64_t before = MonotonicNs();
      rig_.Xdp(Build(Frame{}));
      const uint64_t after = MonotonicNs();
      const std::vector<Bytes> records = rig_.Probes();
      ASSERT_EQ(records.size(), 1u);
      const auto stamp = static_cast<int64_t>(As<cw_ev_sample>(records[0]).ns);
      EXPECT_GE(stamp, static_cast<int64_t>(cw_local_at(&held, before)) + HiddenNs(before) - 1);
      EXPECT_LE(stamp, static_cast<int64_t>(cw_local_at(&held, after)) + HiddenNs(after) + 1);
    }
  }

  ProgRig rig_;
  cw_lab_clock hidden_{};
};

TEST_P(LocalClock, IsMonotonicWithoutALine) { ExpectLine({}); }

TEST_P(LocalClock, FollowsTheLine) {
  cw_local_line line{};
  line.pivot_ns = MonotonicNs() - 3600 * kSecond;
  line.ahead_ns = -40 * kSecond;
  line.rate_q32 = 2'147'484;  // 500 ppm: 1.8 s in that hour
  ExpectLine(line);
  line.rate_q32 = -425'201'762;  // -99,000 ppm
  ExpectLine(line);
}

TEST_P(LocalClock, WorkEndsByItself) {
  cw_local_line line{};
  line.pivot_ns = MonotonicNs() - 10 * kSecond;
  line.work_q32 = 429'497;  // 100 ppm
  line.work_ns = kSecond;
  ExpectLine(line);
  const uint64_t now = MonotonicNs();
  EXPECT_EQ(cw_local_at(&line, now) - now, 100'000u);
  line.work_ns = 3600 * kSecond;  // under way
  line.work_q32 = -429'497;
  ExpectLine(line);
}

TEST_P(LocalClock, BeforeItsPivotALineGoesOn) {
  cw_local_line line{};
  line.pivot_ns = MonotonicNs() + 1000 * kSecond;
  line.rate_q32 = 2'147'484;
  line.work_q32 = 429'497;
  line.work_ns = kSecond;
  ExpectLine(line);
}

INSTANTIATE_TEST_SUITE_P(, LocalClock, ::testing::Bool(),
                         [](const auto& hidden) { return hidden.param ? "WithAHiddenError" : "Alone"; });

}  // namespace
}  // namespace cw::test
